// Questions before what cannot be taken back, and short messages afterwards.

import { announce, h } from "./dom.js";
import { Refused } from "./api.js";

/** Ask; what is done when somebody agrees may be refused, and the reason is shown. */
export function confirm({ title, text, action, act }) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const button = h("button", { class: "danger", type: "submit" }, action);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title), h("p", {}, text), problem,
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), button)));
  dialog.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await act();
      dialog.close();
    } catch (refusal) {
      button.disabled = false;
      tell(problem, refusal);
    }
  });
  show(dialog);
}

/** Show a dialog until it is closed; the focus goes back to where it was. */
export function show(dialog) {
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** Say in an element why something was refused. */
export function tell(element, refusal) {
  if (!(refusal instanceof Refused)) throw refusal;
  element.textContent = refusal.message;
  element.hidden = false;
}

/** A message that goes by itself. */
export function notice(text) {
  announce(text);
  const found = h("p", { class: "toast" }, text);
  document.body.append(found);
  setTimeout(() => found.remove(), 6000);
}
