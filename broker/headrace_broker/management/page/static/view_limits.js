// The limits of flow control, which administrators change for the whole cluster.

import { change, get, path, Refused } from "./api.js";
import { notice, tell } from "./dialog.js";
import { h } from "./dom.js";
import { count, bytes } from "./format.js";

export class LimitsView {
  constructor(app) {
    this.title = "Limits";
    this.query = { view: "quiet" };
    this.may = app.session.administers;
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.list = h("div", { class: "limits" });
    this.element = h("div", { class: "stack" },
      h("p", { class: "hint" }, "They count on all nodes at once, for connections that are open too, and survive restarts."),
      !this.may && h("p", { class: "notice" }, "They are changed by users with the tag administrator."),
      this.problem, this.list);
    this.load();
  }

  async load() {
    try {
      const limits = await get(path("flow", "limits"));
      this.list.replaceChildren(...limits.map((limit) => this.row(limit)));
    } catch (refusal) {
      if (!(refusal instanceof Refused)) throw refusal;
      tell(this.problem, refusal);
    }
  }

  row(limit) {
    const input = h("input", { value: limit.value, "aria-label": limit.name, autocomplete: "off", title: limit.rule });
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    const reset = h("button", { type: "button", disabled: !limit.set, onclick: () => this.act(problem, "DELETE", limit.name) }, "Default");
    const form = h("form", { class: "limit" },
      h("div", {}, h("strong", {}, limit.name), h("p", { class: "hint" }, limit.description)),
      h("fieldset", { disabled: !this.may }, input, h("button", { class: "primary", type: "submit" }, "Set"), reset),
      h("p", { class: "limit-now" }, now(limit)), problem);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.act(problem, "PUT", limit.name, { value: Number(input.value) });
    });
    return form;
  }

  async act(problem, method, name, body) {
    problem.hidden = true;
    try {
      await change(method, path("flow", "limits", name), body);
      notice(`Limit ${name} was ${method === "PUT" ? "set" : "put back to its default"}.`);
      await this.load();
    } catch (refusal) {
      tell(problem, refusal);
    }
  }
}

const SOURCES = { default: "the default", configuration: "as configured", cluster: "set for the cluster" };

function now(limit) {
  const otherwise = limit.set ? `; otherwise ${shown(limit, limit.default)}` : "";
  return `${shown(limit, limit.value)}, ${SOURCES[limit.source] ?? limit.source}${otherwise}`;
}

function shown(limit, value) {
  if (limit.unit !== "bytes") return `${count(value)} ${limit.unit}`;
  return !Number.isInteger(value) ? `${value} of memory` : bytes(value);
}
