// How the cluster is: rates, depth, nodes against their marks, who is held back, what is full.

import { get, Refused } from "./api.js";
import { Chart } from "./chart.js";
import { h } from "./dom.js";
import { count, duration, bytes, percent, rate } from "./format.js";
import * as history from "./history.js";
import { lately } from "./limit.js";
import { clientName, connectionHref, fullness, laterText, limitCell, queueHref, section, stateCell, tile } from "./part.js";
import { AGES, olderTotals } from "./samples.js";
import { Table } from "./table.js";

const RATES = [
  { key: "publish", name: "Published", tone: "line-1" },
  { key: "confirm", name: "Confirmed", tone: "line-2" },
  { key: "deliver", name: "Delivered", tone: "line-3" },
  { key: "ack", name: "Acknowledged", tone: "line-4" },
];
const DEPTH = [
  { key: "ready", name: "Ready", tone: "line-1" },
  { key: "unacked", name: "Unacknowledged", tone: "line-3" },
];

export class OverviewView {
  constructor() {
    this.title = "Overview";
    this.query = { view: "overview" };
    this.tiles = Object.fromEntries([...RATES, ...DEPTH].map(({ key, name }) => [key, tile(name)]));
    this.more = { clients: tile("Connections"), queues: tile("Queues") };
    this.rates = new Chart("Messages per second", RATES, { format: rate });
    this.depth = new Chart("Messages in queues", DEPTH, { format: count });
    this.nodes = nodeTable();
    this.held = heldTable();
    this.full = fullTable();
    this.nodeSection = section("Nodes", this.nodes.element);
    this.nodeSection.hidden = true; // until there are any that the user may see
    const tiles = [...Object.values(this.tiles), ...Object.values(this.more)];
    this.element = h("div", { class: "stack" },
      h("dl", { class: "tiles" }, tiles.map(({ element }) => element)),
      h("div", { class: "pair" }, this.rates.element, this.depth.element),
      this.nodeSection,
      h("div", { class: "pair" }, section("Held back the most", this.held.element), section("Fullest queues", this.full.element)));
    this.load();
  }

  /** What the nodes remember from before the page was open. */
  async load() {
    try {
      history.prepend("overview", olderTotals(await get(`/api/overview?${AGES}`)));
    } catch (refusal) {
      if (!(refusal instanceof Refused)) throw refusal; // then there is only what comes
    }
  }

  close() {
    this.rates.close();
    this.depth.close();
  }

  cluster(values) {
    const totals = values.get("totals");
    if (totals === undefined) return;
    for (const { key } of RATES) this.tiles[key].update(rate(totals.rates[key]));
    this.tiles.ready.update(count(totals.messages_ready), laterText(totals.messages_later));
    this.tiles.unacked.update(count(totals.messages_unacknowledged));
    this.more.clients.update(count(totals.connections), `${count(totals.channels)} channels, ${count(totals.consumers)} consumers`);
    this.more.queues.update(count(totals.queues), `${count(totals.exchanges)} exchanges`);
    const point = { at: values.at, ...totals.rates, ready: totals.messages_ready, unacked: totals.messages_unacknowledged };
    const points = history.add("overview", point);
    this.rates.update(points);
    this.depth.update(points);
    const nodes = values.rows("about", "totals", "alarms", "warnings");
    const leader = values.get("about")?.leader;
    this.nodes.update(nodes.map(([key, node]) => [key, { ...node, leads: node.name === leader }]));
    this.nodeSection.hidden = nodes.length === 0;
  }

  update(values) {
    this.held.update((values.get("connections") ?? []).map((row) => [row.id, row]));
    this.full.update((values.get("queues") ?? []).map((row) => [`${row.vhost}/${row.name}`, row]));
  }
}

function part(used, limit) {
  return limit > 0 ? used / limit : 0;
}

function diskCell(node) {
  if (node.disk_free === undefined) return { text: "–", bar: 0 };
  const share = part(node.disk_free_limit, node.disk_free);
  const tone = node.disk_free_alarm ? "bad" : share > 0.8 ? "warn" : "";
  return { text: `${bytes(node.disk_free)} free`, bar: share, tone, mark: tone || null, title: `publishers are blocked below ${bytes(node.disk_free_limit)}` };
}

function memoryCell(node) {
  if (node.mem_used === undefined) return { text: "–", bar: 0 };
  const tone = node.mem_alarm ? "bad" : node.mem_stage > 0 ? "warn" : "";
  return { text: `${bytes(node.mem_used)} of ${bytes(node.mem_limit)}`, bar: part(node.mem_used, node.mem_limit), tone, mark: tone || null, title: `publishers are blocked from ${bytes(node.mem_limit)} of ${bytes(node.mem_total)} on` };
}

function nameCell(node) {
  const addresses = node.shards.map(({ name, address }) => (node.shards.length > 1 ? `${name} at ${address}` : address)).join(", ");
  return { text: node.name, title: node.leads ? `${addresses}, leads the catalog` : addresses };
}

function nodeStateCell(node) {
  if (!node.running) return { text: "down", tone: "bad" };
  if (node.being_drained) return { text: "in maintenance", tone: "warn" };
  const down = node.shards.filter(({ running }) => !running).map(({ name }) => name);
  if (down.length > 0) return { text: `${down.join(", ")} down`, tone: "bad", title: "the node's other processes run" };
  const drained = node.shards.filter((shard) => shard.being_drained).map(({ name }) => name);
  if (drained.length > 0) return { text: `${drained.join(", ")} in maintenance`, tone: "warn", title: "the node's other processes serve" };
  return { text: "running", tone: "good" };
}

function heldCell(node) {
  if (!node.figures) return { text: "–", bar: 0 };
  const held = node.figures.buffered_bytes + node.figures.pending_bytes;
  const share = part(held, node.figures.bytes_max);
  return { text: bytes(held), bar: share, mark: share > 0.8 ? "warn" : null, title: `publishes that are not in the log yet; at most ${bytes(node.figures.bytes_max)}` };
}

function nodeTable() {
  return new Table("Nodes", [
    { id: "name", title: "Node", value: (row) => row.name, cell: nameCell },
    { id: "state", title: "State", brief: true, value: (row) => Number(row.running), cell: nodeStateCell },
    { id: "memory", title: "Memory", help: "against the mark from which publishers are blocked", number: true, wrap: true, value: (row) => part(row.mem_used, row.mem_limit), cell: memoryCell },
    { id: "disk", title: "Disk", help: "against the mark below which publishers are blocked", number: true, wrap: true, value: (row) => row.disk_free, cell: diskCell },
    { id: "held", title: "Buffered publishes", help: "read from sockets and not in the log yet", number: true, level: 2, value: (row) => row.figures?.buffered_bytes ?? 0, cell: heldCell },
    { id: "connections", title: "Connections", number: true, level: 2, value: (row) => row.connections, cell: (row) => count(row.connections) },
    { id: "up", title: "Up for", number: true, level: 3, value: (row) => -(row.started_ms ?? 0), cell: (row) => (row.started_ms ? { text: duration(Date.now() - row.started_ms), title: new Date(row.started_ms).toLocaleString() } : "–") },
    { id: "waiting", title: "Waiting", help: "channels that wait for their turn on the node", number: true, level: 3, value: (row) => row.figures?.waiting_channels ?? 0, cell: (row) => count(row.figures?.waiting_channels) },
  ], { sort: ["name", false], empty: "No node is known." });
}

function heldTable() {
  return new Table("Connections that are held back the most", [
    { id: "name", title: "Connection", wide: true, value: clientName, cell: (row) => ({ text: clientName(row), href: connectionHref(row.id), title: `${row.name}, user ${row.user}` }) },
    { id: "limit", title: "Limit", value: (row) => lately(row.flow).limit, cell: (row) => limitCell(row) },
    { id: "queue", title: "Queue", level: 2, value: (row) => lately(row.flow).queue, cell: (row) => lately(row.flow).queue || "–" },
    { id: "share", title: "Last 10 s", number: true, value: (row) => row.flow.stopped.last_10s, cell: (row) => percent(row.flow.stopped.last_10s) },
  ], { sort: ["share", true], empty: "Nobody is held back." });
}

function fullTable() {
  return new Table("Fullest queues", [
    { id: "name", title: "Queue", wide: true, value: (row) => row.name, cell: (row) => ({ text: row.name, href: queueHref(row), title: `vhost ${row.vhost}, leader ${row.leader}` }) },
    { id: "state", title: "State", brief: true, value: (row) => row.state, cell: stateCell },
    { id: "ready", title: "Ready", number: true, value: (row) => row.messages_ready, cell: (row) => count(row.messages_ready) },
    { id: "full", title: "Held", number: true, level: 2, value: (row) => row.message_bytes_held, cell: fullCell },
  ], { sort: ["full", true], empty: "All queues are empty." });
}

function fullCell(row) {
  const marks = { high: row.high_watermark, high_bytes: row.high_watermark_bytes };
  const share = fullness({ ...row, message_bytes: row.message_bytes_held, watermarks: marks });
  return { text: bytes(row.message_bytes_held), bar: share ?? 0, mark: row.saturated ? "bad" : share > 0.75 ? "warn" : null, title: share === null ? "no watermark" : `${percent(share)} of its high watermark` };
}
