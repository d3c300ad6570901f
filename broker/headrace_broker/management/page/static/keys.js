// Shortcuts of single keys; whoever does not want them turns them off.

import { h } from "./dom.js";
import { show } from "./dialog.js";
import { NAVIGATION } from "./route.js";

const OFF = "headrace-keys-off";
const PREFIX_MS = 1500; // within which the second key follows a "g"

export class Keys {
  /** @param on {theme}: what keys do that concerns the frame. */
  constructor(on) {
    this.on = on;
    this.prefix = 0;
    this.listen = (event) => this.press(event);
    document.addEventListener("keydown", this.listen);
  }

  close() {
    document.removeEventListener("keydown", this.listen);
  }

  press(event) {
    const typing = event.target.closest("input, textarea, select, dialog") !== null;
    if (event.key === "Escape" && event.target.matches("input[data-filter]")) event.target.blur();
    if (typing || event.ctrlKey || event.altKey || event.metaKey || localStorage.getItem(OFF)) return;
    if (this.act(event)) event.preventDefault();
  }

  act(event) {
    if (Date.now() - this.prefix < PREFIX_MS) {
      this.prefix = 0;
      const found = NAVIGATION.find(({ key }) => key === event.key);
      if (found !== undefined) location.hash = `#/${found.name}`;
      return found !== undefined;
    }
    if (event.key === "g") this.prefix = Date.now();
    else if (event.key === "/") document.querySelector("input[data-filter]")?.focus();
    else if (event.key === "t") this.on.theme();
    else if (event.key === "?") showHelp();
    else return false;
    return true;
  }
}

/** List the shortcuts. */
export function showHelp() {
  const rows = [
    ...NAVIGATION.map(({ key, title }) => [["g", key], title]),
    [["/"], "Filter the list"],
    [["↑", "↓"], "From row to row of a table, and between those in the graph"],
    [["Enter"], "Open the row"],
    [["t"], "Theme: auto, light, dark"],
    [["Esc"], "Close what is open"],
    [["?"], "This list"],
  ];
  const off = h("input", { type: "checkbox", checked: localStorage.getItem(OFF) === null });
  off.addEventListener("change", () => {
    if (off.checked) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, "1");
  });
  const dialog = h("dialog", { "aria-labelledby": "help-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "help-title" }, "Shortcuts"),
      h("dl", { class: "keys" }, rows.map(([keys, text]) =>
        h("div", {}, h("dt", {}, keys.map((key) => h("kbd", {}, key))), h("dd", {}, text)))),
      h("label", { class: "check" }, off, "Single keys are shortcuts"),
      h("div", { class: "buttons" }, h("button", { class: "primary", type: "submit" }, "Close"))));
  show(dialog);
}
