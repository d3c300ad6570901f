// Fields of forms. Each is {name, element, value(), blame(text)}: `value` throws Wrong where what
// is there cannot be sent, `blame` says what is wrong beside it, "" takes that back.

import { h, setAttribute } from "./dom.js";
import { gathered, nameProblem, written, Wrong } from "./setting.js";

let made = 0; // for ids, which tie a problem to its field

function field(name, title, control, { hint = "", value, focus = control }) {
  const id = `field-${(made += 1)}`;
  const problem = h("span", { class: "problem", id: `${id}-problem`, role: "alert", hidden: true });
  const help = hint && h("small", { id: `${id}-hint` }, hint);
  setAttribute(focus, "aria-describedby", `${id}-problem${hint ? ` ${id}-hint` : ""}`);
  return {
    name,
    title,
    element: h("div", { class: "field" }, title && h("label", { for: named(focus, id) }, title), control, help, problem),
    value,
    blame(text) {
      problem.textContent = text;
      problem.hidden = text === "";
      if (!focus.matches("button")) setAttribute(focus, "aria-invalid", text !== "" && "true");
      if (text !== "") focus.focus();
    },
  };
}

function named(control, id) {
  control.id ||= id;
  return control.id;
}

/** A line of text; `check(text)` says what is wrong with it. */
export function text(name, title, value, { check = () => "", suggestions = [], ...options } = {}) {
  const list = suggestions.length > 0 && h("datalist", { id: `list-${(made += 1)}` }, suggestions.map((each) => h("option", { value: each })));
  const { hint, ...attributes } = options;
  const input = h("input", { name, value, autocomplete: "off", autocapitalize: "none", spellcheck: "false", list: list && list.id, ...attributes });
  const told = () => {
    const problem = check(input.value);
    if (problem) throw new Wrong(problem);
    return input.value;
  };
  return field(name, title, list ? h("div", {}, input, list) : input, { hint, value: told, focus: input });
}

/** The name of what is made. */
export function newName(title = "Name") {
  return text("name", title, "", { check: nameProblem, required: true });
}

/** What is there, is said by the title, and cannot be changed. */
export function fixed(name, value) {
  return { name, element: null, value: () => value, blame: () => {} };
}

/** One of some: [[value, text]]. */
export function choice(name, title, value, choices, options = {}) {
  const select = h("select", { name }, choices.map(([each, told]) => h("option", { value: each, selected: each === value }, told)));
  return field(name, title, select, { ...options, value: () => select.value });
}

/** Any of some words, and others in a line of text. */
export function tags(name, title, values, known) {
  const boxes = known.map((each) => h("input", { type: "checkbox", name: each, checked: values.includes(each) }));
  const others = h("input", { name: "other-tags", value: values.filter((each) => !known.includes(each)).join(", "), autocomplete: "off", placeholder: known.length > 0 ? "others" : "a, b", "aria-label": known.length > 0 ? "Other tags" : title });
  const control = h("div", { class: "checks", role: "group", "aria-label": title }, h("span", { class: "label" }, title), known.map((each, at) => h("label", { class: "check" }, boxes[at], each)), others);
  const value = () => [...known.filter((_, at) => boxes[at].checked), ...others.value.split(",").map((each) => each.trim()).filter(Boolean)];
  return { ...field(name, "", control, { value, focus: others }), title };
}

/** Names with values, a line each; `known` are suggested. */
export function settings(name, title, values, known, options = {}) {
  const list = h("datalist", { id: `list-${(made += 1)}` }, known.map((each) => h("option", { value: each })));
  const lines = h("div", { class: "settings" });
  const add = (key = "", told = "") => {
    const line = h("div", { class: "setting" },
      h("input", { name: "setting", value: key, list: list.id, placeholder: "setting", "aria-label": `${title}: name`, autocomplete: "off", spellcheck: "false" }),
      h("input", { name: "setting-value", value: told, placeholder: "value", "aria-label": `${title}: value`, autocomplete: "off", spellcheck: "false" }),
      h("button", { type: "button", "aria-label": "Remove this line", title: "Remove", onclick: () => remove(line) }, "×"));
    lines.append(line);
    return line;
  };
  const more = h("button", { type: "button", onclick: () => add().firstElementChild.focus() }, "Add a line");
  const remove = (line) => {
    line.remove();
    more.focus();
  };
  Object.entries(values).forEach(([key, value]) => add(key, written(key, value)));
  if (lines.children.length === 0) add();
  const value = () => gathered([...lines.children].map((line) => [line.children[0].value, line.children[1].value]));
  const control = h("div", { class: "settings-field", role: "group", "aria-label": title }, list, h("span", { class: "label" }, title), lines, more);
  const found = field(name, "", control, { ...options, value, focus: more });
  return { ...found, title, blame: (told) => blameLine(found, more, lines, told) };
}

/** Say it beside the field, and take the reader to the line that it names. */
function blameLine(found, more, lines, told) {
  found.blame(told);
  const named = /'([^']+)'/.exec(told)?.[1];
  for (const line of lines.children) {
    const [key, value] = line.children;
    const meant = told !== "" && key.value.trim() === named;
    setAttribute(value, "aria-invalid", meant && "true");
    setAttribute(value, "aria-describedby", meant && more.getAttribute("aria-describedby"));
    if (meant) value.focus();
  }
}
