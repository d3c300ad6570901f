// A dialog that makes or changes one thing: fields, problems beside them, and how to get rid of it.

import { Refused } from "./api.js";
import { confirm, notice, show, tell } from "./dialog.js";
import { h } from "./dom.js";
import { blamed, Wrong } from "./setting.js";

/**
 * Show the form.
 *
 * @param told {title, fields, action, save(values), remove, done}: `save` gets values by the names
 *   of fields, and returns what is said afterwards; `remove` is {text, act}, where there is
 *   something to delete; `done(removed)` is called when the form closes after a change.
 */
export function openForm({ title, fields, action, save, remove, done }) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const button = h("button", { class: "primary", type: "submit" }, action);
  const dialog = h("dialog", { class: "record", "aria-labelledby": "record-title" });
  let tried = false; // what failed may have changed something before it did
  let gone = false;
  const close = (text, removed) => {
    gone = removed;
    dialog.close();
    notice(text);
  };
  dialog.addEventListener("close", () => (tried || gone) && done(gone));
  const form = h("form", { method: "dialog", novalidate: true },
    h("h2", { id: "record-title" }, title), fields.map(({ element }) => element), problem,
    h("div", { class: "buttons" },
      remove && h("button", { type: "button", class: "danger apart", onclick: () => ask(remove, close) }, "Delete"),
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), button));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    tried = true;
    try {
      await submit(fields, problem, save, close);
    } finally {
      button.disabled = false;
    }
  });
  dialog.append(form);
  show(dialog);
}

function ask({ title, text, act }, close) {
  confirm({ title, text, action: "Delete", act: async () => close(await act(), true) });
}

async function submit(fields, problem, save, close) {
  problem.hidden = true;
  fields.forEach((each) => each.blame(""));
  const values = gather(fields);
  if (values === null) return;
  try {
    close(await save(values), false);
  } catch (refusal) {
    blame(fields, problem, refusal);
  }
}

/** Values by name, or null: what is wrong is said beside the field. */
function gather(fields) {
  const values = {};
  for (const each of fields) {
    try {
      values[each.name] = each.value();
    } catch (wrong) {
      if (!(wrong instanceof Wrong)) throw wrong;
      each.blame(wrong.message);
      return null;
    }
  }
  return values;
}

function blame(fields, problem, refusal) {
  if (refusal instanceof Wrong) refusal = new Refused(400, refusal.message);
  if (!(refusal instanceof Refused)) throw refusal;
  const name = blamed(refusal.message, fields.map((each) => each.name));
  const found = fields.find((each) => each.name === name);
  if (found === undefined) tell(problem, refusal);
  else found.blame(refusal.message.replace(new RegExp(`^${name}: `), ""));
}

/** Refuse to make what is there already, which would change it. */
export function checkNew(rows, key, what) {
  if (rows.some(key)) throw new Refused(400, `name: there is ${what} of this name already`);
}
