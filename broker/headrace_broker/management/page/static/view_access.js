// Vhosts, users, and who may do what where.

import { List, ListView } from "./list.js";
import { filterField } from "./part.js";

const VHOSTS = [
  { id: "name", title: "Vhost", wide: true, value: (row) => row.name, cell: (row) => row.name },
  { id: "type", title: "Default queue type", level: 2, value: (row) => row.default_queue_type, cell: (row) => row.default_queue_type || "–" },
  { id: "text", title: "Description", value: (row) => row.description, cell: (row) => row.description || "–" },
];

const limits = (row) => Object.entries(row.limits ?? {}).map(([name, value]) => `${name}: ${value}`).join(", ") || "–";

const USERS = [
  { id: "name", title: "User", wide: true, value: (row) => row.name, cell: (row) => row.name },
  { id: "tags", title: "Tags", value: (row) => row.tags.join(), cell: (row) => row.tags.join(", ") || "–" },
  { id: "limits", title: "Limits", level: 2, value: limits, cell: limits },
];

const PERMISSIONS = [
  { id: "user", title: "User", wide: true, value: (row) => row.user, cell: (row) => row.user },
  { id: "vhost", title: "Vhost", value: (row) => row.vhost, cell: (row) => row.vhost },
  ...["configure", "write", "read"].map((name) => ({ id: name, title: name.charAt(0).toUpperCase() + name.slice(1), level: 2, value: (row) => row[name], cell: (row) => row[name] || "nothing" })),
];

const by = (...names) => ({ sort: [names.at(-1), false], empty: "There is none.", key: (row) => names.map((name) => row[name]).join("/") });

export class AccessView extends ListView {
  constructor() {
    super("Access", [
      new List("Vhosts", "/api/vhosts", VHOSTS, by("name")),
      new List("Users", "/api/users", USERS, by("name")),
      new List("Permissions", "/api/permissions", PERMISSIONS, by("vhost", "user")),
    ], (on) => filterField("", on));
  }
}
