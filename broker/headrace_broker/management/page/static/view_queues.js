// All queues: what is in them, how they move, how full they are.

import { h, setText } from "./dom.js";
import { count, bytes, percent, rate } from "./format.js";
import { filterField, fullness, lacks, marksText, queueHref, stateCell } from "./part.js";
import { Table } from "./table.js";

export class QueuesView {
  constructor(app) {
    this.title = "Queues";
    this.query = { view: "queues" };
    this.lacks = h("p", { class: "notice", role: "status" });
    this.table = new Table("Queues", COLUMNS, { sort: ["ready", true], empty: "There is no such queue." });
    const filter = filterField("", (name) => app.watch({ view: "queues", name }));
    this.element = h("div", { class: "stack" }, h("div", { class: "bar-of-tools" }, filter), this.lacks, this.table.element);
  }

  update(values) {
    this.table.update(values.rows("more"));
    setText(this.lacks, lacks(values.get("more"), "queues"));
  }
}

function fullCell(row) {
  const share = fullness(row);
  if (share === null) return { text: bytes(row.message_bytes), bar: 0, title: "no watermark" };
  return { text: bytes(row.message_bytes), bar: share, mark: row.saturated ? "bad" : share > 0.75 ? "warn" : null, title: `${percent(share)} of its high watermark: ${marksText(row.watermarks)}` };
}

const lately = (name) => (row) => row.flow?.[name]?.last_10s ?? 0;

const COLUMNS = [
  { id: "name", title: "Queue", wide: true, value: (row) => row.name, cell: (row) => ({ text: row.name, href: queueHref(row), title: `leader ${row.leader || "none"}, members ${row.members.join(", ")}` }) },
  { id: "vhost", title: "Vhost", level: 3, value: (row) => row.vhost, cell: (row) => row.vhost },
  { id: "type", title: "Type", brief: true, level: 3, value: (row) => row.type, cell: (row) => row.type },
  { id: "state", title: "State", brief: true, help: "flow: it defers confirms", value: (row) => row.state, cell: stateCell },
  { id: "ready", title: "Ready", number: true, value: (row) => row.messages_ready, cell: (row) => count(row.messages_ready) },
  { id: "unacked", title: "Unacked", number: true, level: 2, value: (row) => row.messages_unacknowledged, cell: (row) => count(row.messages_unacknowledged) },
  { id: "held", title: "Held", help: "bytes it holds against its high watermark", number: true, level: 2, value: (row) => fullness(row) ?? 0, cell: fullCell },
  { id: "in", title: "In", help: "arrived per second, last 10 s", number: true, level: 2, value: lately("arrived"), cell: (row) => rate(lately("arrived")(row)) },
  { id: "out", title: "Out", help: "delivered per second, last 10 s", number: true, level: 2, value: lately("delivered"), cell: (row) => rate(lately("delivered")(row)) },
  { id: "ack", title: "Ack", help: "settled per second, last 10 s", number: true, level: 3, value: lately("settled"), cell: (row) => rate(lately("settled")(row)) },
  { id: "consumers", title: "Consumers", number: true, level: 3, value: (row) => row.consumers, cell: (row) => ({ text: count(row.consumers), tone: row.consumers === 0 && row.messages_ready > 0 ? "warn" : "" }) },
];
