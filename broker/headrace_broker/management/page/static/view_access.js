// Vhosts, users, and who may do what where; administrators change them.

import { h } from "./dom.js";
import { List, ListView } from "./list.js";
import { filterField } from "./part.js";
import { openPermission, openTopicPermission, openUser } from "./user_form.js";
import { openVhost } from "./vhost_form.js";

const named = (id, title, open) => ({ id, title, wide: true, value: (row) => row[id], cell: (row) => (open ? { text: row[id], act: () => open(row) } : row[id]) });
const plain = (id, title, level, empty) => ({ id, title, level, value: (row) => row[id], cell: (row) => row[id] || empty });

const vhosts = (open) => [
  named("name", "Vhost", open),
  { id: "type", title: "Default queue type", level: 2, value: (row) => row.default_queue_type, cell: (row) => (row.default_queue_type === "undefined" ? "–" : row.default_queue_type) },
  plain("description", "Description", undefined, "–"),
];

const limits = (row) => Object.entries(row.limits ?? {}).map(([name, value]) => `${name}: ${value}`).join(", ") || "–";

const users = (open) => [
  named("name", "User", open),
  { id: "tags", title: "Tags", value: (row) => row.tags.join(), cell: (row) => row.tags.join(", ") || "–" },
  { id: "limits", title: "Limits", level: 2, value: limits, cell: limits },
];

const permissions = (open) => [
  named("user", "User", open),
  plain("vhost", "Vhost"),
  plain("configure", "Configure", 2, "nothing"),
  plain("write", "Write", 2, "nothing"),
  plain("read", "Read", 2, "nothing"),
];

const topics = (open) => [
  named("user", "User", open),
  plain("vhost", "Vhost", 2),
  plain("exchange", "Exchange"),
  plain("write", "Publish with keys", 2, "the empty one"),
  plain("read", "Bind with keys", 2, "the empty one"),
];

export class AccessView extends ListView {
  constructor({ session }) {
    const list = (title, where, columns, key, word, open) => {
      const done = (removed) => this.changed(made, removed);
      const act = session.administers ? (row) => made.attempt((each) => open(each, done), row) : null;
      const add = act && { title: `Add ${word}`, open: () => act(null) };
      const made = new List(title, where, columns(act), { sort: [key.at(-1), false], empty: "There is none.", key: (row) => key.map((name) => row[name]).join("/"), add });
      return made;
    };
    super("Access", [
      list("Vhosts", "/api/vhosts", vhosts, ["name"], "vhost", openVhost),
      list("Users", "/api/users", users, ["name"], "user", (row, done) => openUser(row, session.user, done)),
      list("Permissions", "/api/permissions", permissions, ["vhost", "user"], "permission", openPermission),
      list("Topic permissions", "/api/topic-permissions", topics, ["vhost", "exchange", "user"], "topic permission", openTopicPermission),
    ], (on) => filterField("", on));
    if (!session.administers) this.element.prepend(h("p", { class: "notice" }, "All of this is changed by users with the tag administrator."));
  }
}
