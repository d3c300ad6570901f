// Connections, those first that are held back the most.

import { h, setText } from "./dom.js";
import { count, bytes } from "./format.js";
import { lately } from "./limit.js";
import { clientName, connectionHref, filterField, lacks, limitCell, shareCell, stateCell } from "./part.js";
import { Table } from "./table.js";

export class ConnectionsView {
  constructor(app) {
    this.title = "Connections";
    this.query = { view: "connections" };
    this.lacks = h("p", { class: "notice", role: "status" });
    this.table = new Table("Connections", COLUMNS, {
      sort: ["share", true],
      empty: "There is no such connection.",
      filled: (element, row) => {
        // For how long it had been stopped when this page first knew of that.
        if (row.flow.limit) element.dataset.seenAfterMs ??= row.flow.since_ms;
      },
    });
    const filter = filterField("", (name) => app.watch({ view: "connections", name }));
    this.element = h("div", { class: "stack" }, h("div", { class: "bar-of-tools" }, filter), this.lacks, this.table.element);
  }

  update(values) {
    this.table.update(values.rows("more"));
    setText(this.lacks, lacks(values.get("more"), "connections"));
  }
}

const COLUMNS = [
  { id: "name", title: "Connection", wide: true, value: clientName, cell: (row) => ({ text: clientName(row), href: connectionHref(row.id), title: row.name }) },
  { id: "user", title: "User", level: 2, value: (row) => row.user, cell: (row) => row.user },
  { id: "vhost", title: "Vhost", level: 3, value: (row) => row.vhost, cell: (row) => row.vhost },
  { id: "node", title: "Node", brief: true, level: 3, value: (row) => row.node, cell: (row) => row.node },
  { id: "state", title: "State", brief: true, value: (row) => row.state, cell: stateCell },
  { id: "limit", title: "Stopped by", help: "the limit that binds now, and the queue behind it", level: 2, value: (row) => lately(row.flow).limit, cell: (row) => limitCell(row, true) },
  { id: "second", title: "1 s", help: "part of the last second that it was stopped", number: true, level: 3, value: (row) => row.flow.stopped.last_1s, cell: (row) => shareCell(row.flow.stopped.last_1s) },
  { id: "share", title: "10 s", help: "part of the last 10 s that it was stopped", number: true, value: (row) => row.flow.stopped.last_10s, cell: (row) => shareCell(row.flow.stopped.last_10s) },
  { id: "minute", title: "60 s", help: "part of the last minute that it was stopped", number: true, level: 2, value: (row) => row.flow.stopped.last_60s, cell: (row) => shareCell(row.flow.stopped.last_60s) },
  { id: "owed", title: "Owed", help: "messages that it has caused and that are not done", number: true, level: 3, value: (row) => row.owed_messages, cell: (row) => count(row.owed_messages) },
  { id: "held", title: "Buffered", help: "bytes in its publish buffer", number: true, level: 3, value: (row) => row.buffered_bytes, cell: (row) => bytes(row.buffered_bytes) },
];
