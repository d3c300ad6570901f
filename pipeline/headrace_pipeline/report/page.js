"use strict";
// Sorts tables, and tells values under the pointer. The page is whole without it.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const upward = head.getAttribute("aria-sort") === "descending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", upward ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const numeric = table.tBodies[0].rows[0]?.cells[column].dataset.v !== undefined;
      const order = (a, b) => (numeric ? key(a) - key(b) : key(a).localeCompare(key(b)));
      const rows = [...table.tBodies[0].rows].sort((a, b) => (upward ? order(a, b) : order(b, a)));
      table.tBodies[0].append(...rows);
    });
  });
}
const SVG = "http://www.w3.org/2000/svg";
const when = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });
function told(figure, share) {
  const lines = [...figure.querySelectorAll("path[data-values]")].map((path) => {
    const values = path.dataset.values.split(" ");
    const value = values[Math.min(Math.floor(share * values.length), values.length - 1)];
    return [path.dataset.name, value === "-" ? "no data" : number.format(value), values.length];
  });
  if (!lines.length) return [];
  const step = Math.min(Math.floor(share * lines[0][2]), lines[0][2] - 1);
  const at = new Date((Number(figure.dataset.start) + step * Number(figure.dataset.step)) * 1000);
  return [when.format(at), ...lines.map(([name, value]) => `${name}: ${value}`)];
}
for (const figure of document.querySelectorAll("figure[data-step]")) {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  figure.append(tip);
  const plots = [...figure.querySelectorAll("svg.plot")];
  const cursors = plots.map((plot) => {
    const cursor = document.createElementNS(SVG, "line");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("y1", "14");
    cursor.setAttribute("y2", plot.querySelector(".ground").getAttribute("y1"));
    cursor.style.display = "none";
    plot.append(cursor);
    return cursor;
  });
  const leave = () => {
    tip.hidden = true;
    cursors.forEach((cursor) => { cursor.style.display = "none"; });
  };
  figure.addEventListener("pointerleave", leave);
  figure.addEventListener("pointermove", (event) => {
    const plot = event.target.closest("svg.plot");
    if (!plot) return leave();
    const box = plot.getBoundingClientRect();
    const share = Math.max(0, Math.min((event.clientX - box.left) / box.width, 0.9999));
    const lines = told(figure, share);
    tip.replaceChildren(...lines.map((text) => Object.assign(document.createElement("div"), { textContent: text })));
    tip.hidden = false;
    tip.style.left = share > 0.5 ? "" : `calc(${share * 100}% + 10px)`;
    tip.style.right = share > 0.5 ? `calc(${100 - share * 100}% + 10px)` : "";
    cursors.forEach((cursor) => {
      cursor.setAttribute("x1", `${share * 100}%`);
      cursor.setAttribute("x2", `${share * 100}%`);
      cursor.style.display = "";
    });
  });
}
