// Lists that are asked for when a view is opened, and again on request.

import { get, Refused } from "./api.js";
import { tell } from "./dialog.js";
import { h } from "./dom.js";
import { section } from "./part.js";
import { Table } from "./table.js";

/**
 * A titled table of what a path answers; rows whose text lacks the filter are left out.
 *
 * `add` is {title, open}, a button below the table, where something can be made.
 */
export class List {
  constructor(title, where, columns, { sort, empty, key, add }) {
    this.where = where;
    this.key = key;
    this.add = add && h("button", { type: "button", onclick: add.open }, add.title);
    this.rows = [];
    this.asked = 0;
    this.wanted = "";
    this.table = new Table(title, columns, { sort, empty });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.element = section(title, this.problem, this.table.element, this.add && h("div", { class: "buttons" }, this.add));
  }

  /** Ask for the rows; an answer that comes after that of a later request is dropped. */
  async load() {
    this.problem.hidden = true;
    const asked = ++this.asked;
    try {
      const rows = await get(this.where);
      if (asked !== this.asked) return;
      this.rows = rows;
      this.table.element.hidden = false;
      this.draw();
    } catch (refusal) {
      if (!(refusal instanceof Refused)) throw refusal;
      if (asked !== this.asked) return;
      this.table.element.hidden = true;
      tell(this.problem, refusal);
    }
  }

  /** Do something about a row, or about none; where it is refused, say so. */
  async attempt(act, row) {
    this.problem.hidden = true;
    try {
      await act(row);
    } catch (refusal) {
      tell(this.problem, refusal);
    }
  }

  filter(wanted) {
    this.wanted = wanted.toLowerCase();
    this.draw();
  }

  draw() {
    const text = (row) => this.table.columns.map((column) => column.value(row)).join("\n").toLowerCase();
    const fits = this.rows.filter((row) => text(row).includes(this.wanted));
    this.table.update(fits.map((row) => [this.key(row), row]));
  }
}

/** A view of lists: a filter for all, and a button that asks again. */
export class ListView {
  constructor(title, lists, field) {
    this.title = title;
    this.query = { view: "quiet" };
    this.lists = lists;
    this.element = h("div", { class: "stack" },
      h("div", { class: "bar-of-tools" }, field((wanted) => lists.forEach((list) => list.filter(wanted))),
        h("button", { type: "button", onclick: () => this.load() }, "Refresh")),
      lists.map((list) => list.element));
    this.load();
  }

  load() {
    return Promise.all(this.lists.map((list) => list.load()));
  }

  /**
   * Show what was changed; where a row has gone, so has what had the focus.
   *
   * Nothing scrolls for that: somebody may be about to click on another row by then.
   */
  async changed(list, removed) {
    await this.load();
    if (removed && document.activeElement === document.body) list.add?.focus({ preventScroll: true });
  }
}
