// Lines over time with axes, units and marks; drawn again only where something has changed.

import { h, setAttribute, setText, svg } from "./dom.js";
import { clock } from "./format.js";
import { linePath, ticks as roundTicks, timeTicks } from "./scale.js";

const LEFT = 58;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 22;
const HEIGHT = 176;
const SECONDS_MIN = 60; // that the time axis spans, however little is known

export class Chart {
  /**
   * @param title what is shown.
   * @param lines [{key, name, tone}]: figures of the points, and what they are called.
   * @param options {format, ticks, seconds}: of values; how steps are chosen; how long a stretch.
   */
  constructor(title, lines, { format, ticks = roundTicks, seconds = 300 }) {
    this.title = title;
    this.lines = lines;
    this.format = format;
    this.ticks = ticks;
    this.seconds = seconds;
    this.points = [];
    this.marks = [];
    this.width = 0;
    this.build();
  }

  build() {
    this.grid = svg("g", { class: "chart-grid" });
    this.markGroup = svg("g", { class: "chart-marks" });
    this.paths = this.lines.map((line) => svg("path", { class: `chart-line ${line.tone}` }));
    this.cursor = svg("line", { class: "chart-cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.picture = svg("svg", { class: "chart-picture", height: HEIGHT, role: "img" }, this.grid, this.markGroup, ...this.paths, this.cursor);
    this.values = this.lines.map(() => h("span", { class: "chart-value" }));
    this.when = h("span", { class: "chart-when" });
    const legend = this.lines.map((line, at) =>
      h("li", {}, h("span", { class: `chart-key ${line.tone}` }), `${line.name} `, this.values[at]));
    this.element = h("figure", { class: "chart" },
      h("figcaption", {}, h("span", { class: "chart-title" }, this.title), this.when, h("ul", { class: "chart-legend" }, legend)),
      this.picture);
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => this.point(null));
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.element);
  }

  close() {
    this.watcher.disconnect();
  }

  /** Show points [{at, ...}], the oldest first, and marks [{value, name, tone}]. */
  update(points, marks = []) {
    this.points = points;
    this.marks = marks.filter((mark) => mark.value > 0);
    this.draw();
  }

  draw() {
    const width = Math.floor(this.element.clientWidth);
    if (width === 0) return;
    this.width = width;
    setAttribute(this.picture, "width", width);
    setAttribute(this.picture, "viewBox", `0 0 ${width} ${HEIGHT}`);
    const to = this.points.at(-1)?.at ?? Date.now();
    const known = (to - (this.points[0]?.at ?? to)) / 1000;
    this.from = to - Math.min(this.seconds, Math.max(SECONDS_MIN, known)) * 1000;
    this.to = to;
    this.shown = this.points.filter((point) => point.at >= this.from - 2000);
    this.steps = this.ticks(this.most());
    this.drawGrid();
    this.drawMarks();
    this.lines.forEach((line, at) => {
      const path = linePath(this.shown.map((point) => [this.x(point.at), point[line.key] === undefined ? null : this.y(point[line.key])]));
      setAttribute(this.paths[at], "d", path);
    });
    this.describe(this.shown.at(-1), "");
  }

  /** The largest value in sight; a mark is in sight unless it lies far above. */
  most() {
    let most = 0;
    for (const point of this.shown) {
      for (const line of this.lines) most = Math.max(most, point[line.key] ?? 0);
    }
    for (const mark of this.marks) {
      if (mark.value <= most * 4) most = Math.max(most, mark.value * 1.05);
    }
    return most;
  }

  x(at) {
    const room = this.width - LEFT - RIGHT;
    return LEFT + Math.max(0, (at - this.from) / (this.to - this.from)) * room;
  }

  y(value) {
    return HEIGHT - BOTTOM - (value / this.steps.at(-1)) * (HEIGHT - TOP - BOTTOM);
  }

  drawGrid() {
    const levels = this.steps.map((step) => {
      const y = this.y(step);
      return [
        svg("line", { x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }),
        svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, this.format(step)),
      ];
    });
    const wanted = Math.max(2, Math.floor((this.width - LEFT) / 96));
    const times = timeTicks(this.from, this.to, wanted).map((at) =>
      svg("text", { x: Math.min(this.x(at), this.width - RIGHT - 24), y: HEIGHT - 6, "text-anchor": "middle" }, clock(at)));
    this.grid.replaceChildren(...levels.flat(), ...times);
  }

  drawMarks() {
    const seen = this.marks.filter((mark) => mark.value <= this.steps.at(-1));
    this.markGroup.replaceChildren(...seen.flatMap((mark) => {
      const y = this.y(mark.value);
      return [
        svg("line", { class: mark.tone, x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }),
        svg("text", { class: mark.tone, x: this.width - RIGHT - 4, y: y < TOP + 12 ? y + 13 : y - 4, "text-anchor": "end" }, mark.name),
      ];
    }));
  }

  /** Say a point's values in the legend, and the latest ones to who cannot see the lines. */
  describe(point, when) {
    setText(this.when, when);
    const told = this.lines.map((line, at) => {
      const text = this.format(point?.[line.key] ?? 0);
      setText(this.values[at], text);
      return `${line.name} ${text}`;
    });
    if (when === "") setAttribute(this.picture, "aria-label", `${this.title}, now: ${told.join(", ")}`);
  }

  point(event) {
    if (event === null || this.shown.length === 0) {
      setAttribute(this.cursor, "visibility", "hidden");
      this.describe(this.shown?.at(-1), "");
      return;
    }
    const at = this.from + ((event.offsetX - LEFT) / (this.width - LEFT - RIGHT)) * (this.to - this.from);
    const nearest = this.shown.reduce((best, each) => (Math.abs(each.at - at) < Math.abs(best.at - at) ? each : best));
    const x = this.x(nearest.at);
    setAttribute(this.cursor, "x1", x);
    setAttribute(this.cursor, "x2", x);
    setAttribute(this.cursor, "visibility", "visible");
    this.describe(nearest, clock(nearest.at));
  }
}
