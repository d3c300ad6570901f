// Policies, and the operator's that bound them.

import { List, ListView } from "./list.js";
import { filterField } from "./part.js";

const definition = (row) => Object.entries(row.definition).map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", ");

const COLUMNS = [
  { id: "name", title: "Policy", wide: true, value: (row) => row.name, cell: (row) => row.name },
  { id: "vhost", title: "Vhost", level: 3, value: (row) => row.vhost, cell: (row) => row.vhost },
  { id: "pattern", title: "Pattern", value: (row) => row.pattern, cell: (row) => row.pattern },
  { id: "to", title: "Applies to", level: 3, value: (row) => row["apply-to"], cell: (row) => row["apply-to"] },
  { id: "priority", title: "Priority", number: true, level: 2, value: (row) => row.priority, cell: (row) => String(row.priority) },
  { id: "definition", title: "Says", wide: true, value: definition, cell: definition },
];

const options = { sort: ["name", false], empty: "There is none.", key: (row) => `${row.vhost}/${row.name}` };

export class PoliciesView extends ListView {
  constructor() {
    const policies = new List("Policies", "/api/policies", COLUMNS, options);
    const operators = new List("Operator policies", "/api/operator-policies", COLUMNS, options);
    super("Policies", [policies, operators], (on) => filterField("", on));
  }
}
