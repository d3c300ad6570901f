// Channels with what stops them.

import { h, setText } from "./dom.js";
import { count, peer } from "./format.js";
import { lately } from "./limit.js";
import { connectionHref, filterField, lacks, limitCell, shareCell, stateCell } from "./part.js";
import { Table } from "./table.js";

export class ChannelsView {
  constructor(app) {
    this.title = "Channels";
    this.query = { view: "channels" };
    this.lacks = h("p", { class: "notice", role: "status" });
    this.table = new Table("Channels", CHANNEL_COLUMNS, { sort: ["share", true], empty: "There is no such channel." });
    const filter = filterField("", (name) => app.watch({ view: "channels", name }));
    this.element = h("div", { class: "stack" }, h("div", { class: "bar-of-tools" }, filter), this.lacks, this.table.element);
  }

  update(values) {
    this.table.update(values.rows("more"));
    setText(this.lacks, lacks(values.get("more"), "channels"));
  }
}

function title(row) {
  return `${peer(row.connection_details.name)} (${row.number})`;
}

function modes(row) {
  const found = [];
  if (row.confirm) found.push("confirms");
  if (row.prefetch_count > 0) found.push(`prefetch ${count(row.prefetch_count)}`);
  if (row.global_prefetch_count > 0) found.push(`global prefetch ${count(row.global_prefetch_count)}`);
  return found.join(", ") || "–";
}

export const CHANNEL_COLUMNS = [
  { id: "name", title: "Channel", wide: true, value: title, cell: (row) => ({ text: title(row), href: connectionHref(row.id.slice(0, row.id.lastIndexOf("/"))), title: row.name }) },
  { id: "user", title: "User", level: 3, value: (row) => row.user, cell: (row) => row.user },
  { id: "node", title: "Node", brief: true, level: 3, value: (row) => row.node, cell: (row) => row.node },
  { id: "state", title: "State", brief: true, value: (row) => row.state, cell: stateCell },
  { id: "limit", title: "Stopped by", level: 2, value: (row) => lately(row.flow).limit, cell: (row) => limitCell(row, true) },
  { id: "share", title: "10 s", help: "part of the last 10 s that it was stopped", number: true, value: (row) => row.flow.stopped.last_10s, cell: (row) => shareCell(row.flow.stopped.last_10s) },
  { id: "unconfirmed", title: "Unconfirmed", help: "groups of publishes that wait for their confirm", number: true, level: 2, value: (row) => row.messages_unconfirmed, cell: (row) => count(row.messages_unconfirmed) },
  { id: "unacked", title: "Unacked", help: "deliveries that its client has not settled", number: true, level: 2, value: (row) => row.messages_unacknowledged, cell: (row) => count(row.messages_unacknowledged) },
  { id: "consumers", title: "Consumers", number: true, level: 3, value: (row) => row.consumer_count, cell: (row) => count(row.consumer_count) },
  { id: "mode", title: "Mode", level: 3, value: modes, cell: modes },
];
