// The graph as a picture: who brings what, through which exchange, to which queue, and which gate binds.

import { h, svg } from "./dom.js";
import { count, bytes, percent, rate } from "./format.js";
import { buildGraph } from "./graph_model.js";
import { fit, layOut } from "./graph_layout.js";
import { accountName } from "./why.js";

const HEADS = ["Who", "Exchange", "Queue"];
const PAD = 9;

export class Graph {
  /** @param select called with a node that was chosen, or null. */
  constructor(select) {
    this.select = select;
    this.order = new Map();
    this.selected = null;
    this.told = null;
    this.picture = svg("svg", { class: "graph-picture", role: "group", "aria-label": "Who is charged for what" });
    this.empty = h("p", { class: "empty" }, "Nothing has been published in the last seconds, and nobody is held back.");
    this.element = h("div", { class: "graph" }, this.picture, this.empty);
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.element);
    this.picture.addEventListener("keydown", (event) => this.walk(event));
    this.picture.addEventListener("click", (event) => {
      if (event.target === this.picture) this.choose(null);
    });
  }

  close() {
    this.watcher.disconnect();
  }

  update(told) {
    this.told = told;
    this.draw();
  }

  choose(node) {
    this.selected = node === null || node.id === this.selected ? null : node.id;
    this.draw();
    this.select(this.selected === null ? null : node);
  }

  draw() {
    const width = Math.floor(this.element.clientWidth);
    if (this.told === null || width === 0) return;
    const graph = buildGraph(this.told);
    const focused = document.activeElement?.dataset?.node;
    const layout = layOut(graph, width, this.order);
    this.empty.hidden = graph.nodes.length > 0;
    this.picture.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`);
    this.picture.setAttribute("width", layout.width);
    this.picture.setAttribute("height", graph.nodes.length > 0 ? layout.height : 0);
    const heads = layout.columns.map(({ x, width: room }, layer) =>
      svg("text", { class: "graph-head", x: layer === 2 ? x + room : x + (layer === 1 ? room / 2 : 0), y: 13, "text-anchor": ["start", "middle", "end"][layer] }, HEADS[layer]));
    const near = this.selected === null ? null : this.nearby(graph);
    const links = layout.links.map((place) => this.link(place));
    const nodes = [...layout.nodes.values()].map((place) => this.node(place, near));
    this.picture.replaceChildren(...heads, ...links, ...nodes);
    if (focused !== undefined) this.focus(focused);
  }

  /** Ids of what the chosen node's messages touch. */
  nearby(graph) {
    const found = new Set([this.selected]);
    for (const link of graph.links) {
      if (link.through.has(this.selected)) {
        found.add(link.from);
        found.add(link.to);
      }
    }
    return found;
  }

  link({ link, width, path, x1, y1, x2, y2 }) {
    const held = link.begin || link.end;
    const faded = this.selected !== null && !link.through.has(this.selected);
    const line = svg("path", { class: `link${held ? " held" : ""}${faded ? " faded" : ""}`, d: path, "stroke-width": width.toFixed(1) },
      svg("title", {}, `${bytes(link.load)} owed or brought in the last 10 s${held ? `; held by ${held}` : ""}`));
    const gates = [link.begin && gate(x1 + 6, y1, width, link.now), link.end && gate(x2 - 6, y2, width, link.now)].filter(Boolean);
    return svg("g", { class: faded ? "faded" : null }, line, ...gates);
  }

  node(place, near) {
    const { node, x, y, width, height } = place;
    const lines = LINES[node.layer](node);
    const active = node.layer !== 1;
    const faded = near !== null && !near.has(node.id);
    const names = ["node", `layer${node.layer}`, lines.tone, faded && "faded", node.id === this.selected && "chosen"];
    const room = width - 2 * PAD;
    const group = svg("g", {
      class: names.filter(Boolean).join(" "),
      transform: `translate(${x} ${y})`,
      role: active ? "button" : null,
      tabindex: active ? 0 : null,
      "aria-pressed": active ? String(node.id === this.selected) : null,
      "aria-label": `${lines.name}, ${lines.note}`,
      "data-node": node.id,
      "data-limit": node.limit || null,
      onclick: active && (() => this.choose(node)),
      onkeydown: active && ((event) => this.press(event, node)),
    },
    svg("title", {}, [lines.name, lines.note, lines.more].filter(Boolean).join("\n")),
    svg("rect", { class: "box", width, height, rx: 5 }),
    svg("rect", { class: "stripe", width: 4, height, rx: 2 }),
    svg("text", { class: "node-name", x: PAD + 2, y: 18 }, fit(lines.name, room, 6.9)),
    height > 36 && svg("text", { class: "node-note", x: PAD + 2, y: 34 }, fit(lines.note, room, 6)),
    lines.part !== undefined && bar(PAD + 2, 42, room - 4, lines));
    return group;
  }

  press(event, node) {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    this.choose(node);
  }

  /** Arrow keys go from node to node. */
  walk(event) {
    const nodes = [...this.picture.querySelectorAll("[tabindex]")];
    const at = nodes.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (at < 0 || step === undefined) return;
    event.preventDefault();
    nodes[(at + step + nodes.length) % nodes.length].focus();
  }

  focus(id) {
    this.picture.querySelector(`[data-node="${CSS.escape(id)}"]`)?.focus({ preventScroll: true });
  }
}

/** The sign of a limit that binds: a closed gate across the link; pale where it has just opened. */
function gate(x, y, width, closed) {
  const half = Math.max(width / 2 + 4, 7);
  return svg("g", { class: closed ? "gate" : "gate open" },
    svg("line", { x1: x - 2.5, x2: x - 2.5, y1: y - half, y2: y + half }),
    svg("line", { x1: x + 2.5, x2: x + 2.5, y1: y - half, y2: y + half }));
}

function bar(x, y, width, { part, low }) {
  return svg("g", { class: "fill" },
    svg("rect", { class: "fill-room", x, y, width, height: 5, rx: 2.5 }),
    svg("rect", { class: "fill-part", x, y, width: Math.max(0, Math.min(part, 1) * width), height: 5, rx: 2.5 }),
    low > 0 && svg("line", { class: "fill-low", x1: x + low * width, x2: x + low * width, y1: y - 1, y2: y + 6 }));
}

function sourceLines(node) {
  if (node.id.endsWith(" others") || node.id === "source hidden") {
    const name = node.id.endsWith(" others") ? `${count(node.count.size)} others` : "other users' connections";
    return { name, note: rate(node.rate), tone: node.limit ? "warn" : "" };
  }
  const { connection } = node;
  const name = accountName(node);
  const more = `user ${node.user || "–"}, node ${node.node || "–"}, ${rate(node.rate)}`;
  if (!node.limit) return { name, note: `${rate(node.rate)} · ${node.node}`, more, tone: "" };
  const share = connection ? ` · ${percent(connection.flow.stopped.last_10s)}` : "";
  return { name, note: `${node.now ? "held" : "was held"}: ${node.limit}${share}`, more, tone: node.limit.endsWith("-alarm") ? "bad" : "warn" };
}

function exchangeLines(node) {
  return { name: node.name || "(default)", note: `exchange in vhost ${node.vhost}`, tone: "" };
}

function queueLines(node) {
  if (node.id.endsWith(" others")) return { name: `${count(node.count.size)} other queues`, note: "", tone: node.limit ? "warn" : "" };
  const { row } = node;
  if (row === undefined) return { name: node.name, note: node.limit ? `held: ${node.limit}` : "", tone: node.limit ? "warn" : "" };
  const parts = [];
  if (row.high_watermark_bytes) parts.push([row.message_bytes_held / row.high_watermark_bytes, row.low_watermark_bytes / row.high_watermark_bytes, bytes(row.high_watermark_bytes)]);
  if (row.high_watermark) parts.push([row.messages_held / row.high_watermark, row.low_watermark / row.high_watermark, `${count(row.high_watermark)} messages`]);
  const [part, low, mark] = parts.sort(([one], [other]) => other - one)[0] ?? [];
  const note = row.saturated ? `saturated: ${percent(part)} of ${mark}` : node.limit ? `held: ${node.limit}` : `${count(row.messages_ready)} ready · ${rate(row.settled.last_10s)} acked`;
  const more = `vhost ${row.vhost}, leader ${row.leader}, ${count(row.consumers)} consumers`;
  return { name: node.name, note, more, part, low, tone: row.saturated || node.limit ? "warn" : "" };
}

const LINES = [sourceLines, exchangeLines, queueLines];
