// Tables whose rows change in place: sorted by any column, walked with the arrow keys.

import { h, setAttribute, setText } from "./dom.js";

/**
 * A column: {id, title, value(row), cell(row), number, level, help}.
 * `value` is what is sorted by; `cell` a text, or {text, href, act, tone, title, bar, mark}: a link,
 * or what a button does, how it stands, and a bar from 0 to 1. Columns of level 2 and 3 go where there is little room, texts
 * of `brief` ones are not broken into lines.
 */
export class Table {
  /**
   * @param label says what the rows are.
   * @param columns see above; the first one names the row.
   * @param options {sort: [id, descending], empty, rowClass(row), filled(element, row)}.
   */
  constructor(label, columns, { sort, empty, rowClass = () => "", filled = () => {} }) {
    this.columns = columns;
    this.sort = sort;
    this.rowClass = rowClass;
    this.filled = filled;
    this.rows = new Map();
    this.shown = new Map();
    this.body = h("tbody", { onkeydown: (event) => this.walk(event) });
    this.heads = columns.map((column) => this.head(column));
    this.empty = h("p", { class: "empty", hidden: true }, empty);
    this.table = h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.element = h("div", { class: "table" }, this.table, this.empty);
  }

  head(column) {
    const button = h("button", { type: "button", title: column.help, onclick: () => this.sortBy(column) }, column.title);
    return h("th", { scope: "col", class: classes(column) }, button);
  }

  sortBy(column) {
    const [id, descending] = this.sort;
    this.sort = [column.id, id === column.id ? !descending : Boolean(column.number)];
    this.draw();
  }

  /** Show rows: [[key, row]]. */
  update(rows) {
    this.rows = new Map(rows);
    this.draw();
  }

  draw() {
    this.heads.forEach((head, at) => {
      const [id, descending] = this.sort;
      setAttribute(head, "aria-sort", this.columns[at].id === id && (descending ? "descending" : "ascending"));
    });
    for (const key of this.shown.keys()) {
      if (!this.rows.has(key)) {
        this.shown.get(key).row.remove();
        this.shown.delete(key);
      }
    }
    this.ordered().forEach(([key, values], at) => {
      const shown = this.shown.get(key) ?? this.add(key, values);
      this.fill(shown, values);
      if (this.body.children[at] !== shown.row) this.body.insertBefore(shown.row, this.body.children[at] ?? null);
    });
    setAttribute(this.empty, "hidden", this.rows.size > 0 ? "" : false);
    setAttribute(this.table, "hidden", this.rows.size === 0 ? "" : false);
  }

  ordered() {
    const [id, descending] = this.sort;
    const { value } = this.columns.find((column) => column.id === id);
    const keyed = [...this.rows].map((each) => [value(each[1]), each]);
    keyed.sort(([one, [left]], [other, [right]]) => {
      const order = compare(one, other);
      return (descending ? -order : order) || compare(left, right);
    });
    return keyed.map(([, each]) => each);
  }

  add(key, values) {
    const cells = this.columns.map((column, at) => {
      const content = h("span", { class: "cell" });
      return { content, element: h(at === 0 ? "th" : "td", { class: classes(column), scope: at === 0 && "row" }, content) };
    });
    const shown = { row: h("tr", {}, cells.map((cell) => cell.element)), cells };
    this.shown.set(key, shown);
    return shown;
  }

  fill(shown, values) {
    setAttribute(shown.row, "class", this.rowClass(values) || null);
    this.filled(shown.row, values);
    this.columns.forEach((column, at) => {
      const cell = column.cell(values);
      const told = typeof cell === "string" ? { text: cell } : cell;
      this.fillCell(shown.cells[at], told);
    });
  }

  fillCell(cell, { text, href, act, tone, title, bar, mark }) {
    if (cell.link === undefined) this.shape(cell, href !== undefined, act !== undefined, bar !== undefined);
    cell.act = act;
    setText(cell.text, text);
    if (href !== undefined) setAttribute(cell.link, "href", href);
    setAttribute(cell.text, "class", tone ? `tone ${tone}` : null);
    setAttribute(cell.element, "title", title);
    if (bar === undefined) return;
    cell.bar.style.setProperty("--part", Math.min(bar, 1).toFixed(3));
    setAttribute(cell.bar, "class", `bar ${bar > 0 ? (mark ?? "") : "none"}`.trim());
  }

  /** Give a cell the elements that it keeps. */
  shape(cell, linked, acting, barred) {
    cell.text = h("span", {});
    cell.link = linked ? h("a", { class: "row-link" }, cell.text) : null;
    if (acting) cell.link = h("button", { type: "button", class: "row-link", onclick: () => cell.act() }, cell.text);
    cell.bar = barred ? h("span", { class: "bar", "aria-hidden": "true" }) : null;
    cell.content.append(cell.link ?? cell.text, cell.bar ?? "");
  }

  /** Arrow keys go from row to row. */
  walk(event) {
    const links = [...this.body.querySelectorAll(".row-link")];
    const at = links.indexOf(document.activeElement);
    const steps = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 };
    const to = links[steps[event.key]];
    if (at < 0 || to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    to.focus();
  }
}

function classes(column) {
  return [column.number && "number", column.level && `level-${column.level}`, column.wide && "wide", column.wrap && "wrap", column.brief && "brief"].filter(Boolean).join(" ") || null;
}

function compare(one, other) {
  if (typeof one === "string" && typeof other === "string") return one.localeCompare(other, undefined, { numeric: true });
  return (one ?? -1) - (other ?? -1);
}
