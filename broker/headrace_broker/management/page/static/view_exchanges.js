// Exchanges.

import { List, ListView } from "./list.js";
import { filterField } from "./part.js";

const COLUMNS = [
  { id: "name", title: "Exchange", wide: true, value: (row) => row.name, cell: (row) => row.name || "(default)" },
  { id: "vhost", title: "Vhost", level: 2, value: (row) => row.vhost, cell: (row) => row.vhost },
  { id: "type", title: "Type", brief: true, value: (row) => row.type, cell: (row) => row.type },
  { id: "features", title: "Features", level: 2, value: features, cell: features },
  { id: "policy", title: "Policy", level: 3, value: (row) => row.policy ?? "", cell: (row) => row.policy ?? "–" },
];

function features(row) {
  const found = [row.durable && "durable", row.auto_delete && "auto-delete", row.internal && "internal"];
  const told = Object.entries(row.arguments).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  return [...found.filter(Boolean), ...told].join(", ") || "–";
}

export class ExchangesView extends ListView {
  constructor() {
    const exchanges = new List("Exchanges", "/api/exchanges", COLUMNS, { sort: ["name", false], empty: "There is no such exchange.", key: (row) => `${row.vhost}/${row.name}` });
    super("Exchanges", [exchanges], (on) => filterField("", on));
  }
}
