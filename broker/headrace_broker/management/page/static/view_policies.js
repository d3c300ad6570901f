// Policies, and the operator's that bound them.

import { h } from "./dom.js";
import { List, ListView } from "./list.js";
import { filterField } from "./part.js";
import { KINDS, openPolicy } from "./policy_form.js";

const definition = (row) => Object.entries(row.definition).map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", ");

const columns = (open) => [
  { id: "name", title: "Policy", wide: true, value: (row) => row.name, cell: (row) => (open ? { text: row.name, act: () => open(row) } : row.name) },
  { id: "vhost", title: "Vhost", level: 3, value: (row) => row.vhost, cell: (row) => row.vhost },
  { id: "pattern", title: "Pattern", value: (row) => row.pattern, cell: (row) => row.pattern },
  { id: "to", title: "Applies to", level: 3, value: (row) => row["apply-to"], cell: (row) => row["apply-to"] },
  { id: "priority", title: "Priority", number: true, level: 2, value: (row) => row.priority, cell: (row) => String(row.priority) },
  { id: "definition", title: "Says", wide: true, value: definition, cell: definition },
];

export class PoliciesView extends ListView {
  constructor({ session }) {
    const policies = list("Policies", "policy", session.makes_policies, (removed) => this.changed(policies, removed));
    const operators = list("Operator policies", "operator", session.administers, (removed) => this.changed(operators, removed));
    super("Policies", [policies, operators], (on) => filterField("", on));
    if (!session.makes_policies) {
      this.element.prepend(h("p", { class: "notice" }, "Policies are changed by users with the tag policymaker or administrator, operator policies by administrators."));
    }
  }
}

function list(title, kind, may, done) {
  const { word, part } = KINDS[kind];
  const open = may ? (row) => made.attempt((each) => openPolicy(kind, each, done), row) : null;
  const add = may && { title: `Add ${word}`, open: () => open(null) };
  const made = new List(title, `/api/${part}`, columns(open), { sort: ["name", false], empty: "There is none.", key: (row) => `${row.vhost}/${row.name}`, add });
  return made;
}
