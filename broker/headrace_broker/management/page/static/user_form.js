// Forms of users, of what they may in a vhost, and of the routing keys they may use.

import { change, get, path } from "./api.js";
import { fixed, newName, settings, tags, text } from "./field.js";
import { checkNew, openForm } from "./record_form.js";
import { changes, USER_LIMITS, Wrong } from "./setting.js";

const TAGS = ["administrator", "monitoring", "policymaker", "management"];

/** Make a user (`row` null) or change one. */
export async function openUser(row, self, done) {
  const names = row === null ? newName() : fixed("name", row.name);
  const known = { there: row !== null, limits: { ...row?.limits } };
  openForm({
    title: row === null ? "New user" : `User “${row.name}”`,
    action: row === null ? "Add user" : "Save",
    fields: [names, password(row), tags("tags", "Tags", row?.tags ?? [], TAGS), settings("limits", "Limits", row?.limits ?? {}, USER_LIMITS, { hint: "Each node counts what goes through it." })],
    save: (values) => save(known, row === null, values),
    remove: row && { title: `Delete user “${row.name}”?`, text: deleting(row.name === self), act: () => remove(path("users", row.name), `User “${row.name}” was deleted.`) },
    done,
  });
}

function password(row) {
  const hint = row === null ? "" : "Left empty, it stays as it is.";
  const check = (given) => (row === null && given === "" ? "must not be empty" : "");
  return text("password", "Password", "", { type: "password", autocomplete: "new-password", hint, check });
}

function deleting(self) {
  const own = self ? "This is you: the log-in at this page ends. " : "";
  return `${own}Permissions and limits of the user go as well, and its connections are closed.`;
}

async function save(known, fresh, values) {
  if (!known.there) checkNew(await get("/api/users"), (user) => user.name === values.name, "a user");
  await change("PUT", path("users", values.name), { tags: values.tags, ...(await proof(values)) });
  known.there = true;
  await setLimits("user-limits", values.name, known, values.limits);
  return `User “${values.name}” was ${fresh ? "added" : "changed"}.`;
}

/** What proves the password: a new one, or what proves it now, which has to be said again. */
async function proof(values) {
  if (values.password !== "") return { password: values.password };
  const { password_hash, hashing_algorithm } = await get(path("users", values.name));
  return { password_hash, hashing_algorithm };
}

/** Set limits of a user or vhost one by one; `known.limits` says what there is, also when one is refused. */
export async function setLimits(kind, owner, known, limits) {
  for (const [name, value] of changes(known.limits, limits)) {
    if (value !== null && typeof value !== "number") throw new Wrong(`limit '${name}' must be a whole number`);
    if (value === null) await change("DELETE", path(kind, owner, name));
    else await change("PUT", path(kind, owner, name), { value });
    const { [name]: _, ...others } = known.limits;
    known.limits = value === null ? others : { ...others, [name]: value };
  }
}

/** Delete what is there, and say so. */
export async function remove(where, told) {
  await change("DELETE", where);
  return told;
}

const PATTERNS = [["configure", "Configure"], ["write", "Write"], ["read", "Read"]];
const HINT = "A regular expression that is found in names; empty allows nothing, .* all.";

/** Allow a user something in a vhost (`row` null), or change what is allowed. */
export async function openPermission(row, done) {
  const place = row === null ? await placeFields() : [fixed("user", row.user), fixed("vhost", row.vhost)];
  const where = ({ user, vhost }) => path("permissions", vhost, user);
  openForm({
    title: row === null ? "New permission" : `Permission of “${row.user}” in “${row.vhost}”`,
    action: row === null ? "Allow" : "Save",
    fields: [...place, ...PATTERNS.map(([name, title]) => text(name, title, row === null ? ".*" : row[name], { hint: name === "configure" ? HINT : "" }))],
    save: async (values) => {
      const { configure, write, read } = values;
      await change("PUT", where(values), { configure, write, read });
      return `Permission of “${values.user}” in “${values.vhost}” was set.`;
    },
    remove: row && { title: "Take this permission away?", text: `User “${row.user}” may not enter vhost “${row.vhost}” any more.`, act: () => remove(where(row), "The permission was taken away.") },
    done,
  });
}

/** Narrow down which routing keys a user may use at an exchange (`row` null), or change that. */
export async function openTopicPermission(row, done) {
  const place = row === null
    ? [...await placeFields(), text("exchange", "Exchange", "amq.topic", { check: filled })]
    : [fixed("user", row.user), fixed("vhost", row.vhost), fixed("exchange", row.exchange)];
  openForm({
    title: row === null ? "New topic permission" : `Routing keys of “${row.user}” at “${row.exchange}”`,
    action: row === null ? "Set" : "Save",
    fields: [...place, text("write", "Publish with keys", row?.write ?? ".*", { hint: "Regular expressions; {username} and {vhost} stand for the names." }), text("read", "Bind with keys", row?.read ?? ".*")],
    save: async ({ user, vhost, exchange, write, read }) => {
      await change("PUT", path("topic-permissions", vhost, user), { exchange, write, read });
      return `Routing keys of “${user}” at “${exchange}” were set.`;
    },
    remove: row && { title: "Delete this topic permission?", text: `User “${row.user}” may use any routing key at exchange “${row.exchange}” then.`, act: () => remove(path("topic-permissions", row.vhost, row.user, row.exchange), "The topic permission was deleted.") },
    done,
  });
}

const filled = (given) => (given === "" ? "must not be empty" : "");

async function placeFields() {
  const [users, vhosts] = await Promise.all([get("/api/users"), get("/api/vhosts")]);
  return [
    text("user", "User", "", { check: filled, suggestions: users.map(({ name }) => name) }),
    text("vhost", "Vhost", vhosts.length === 1 ? vhosts[0].name : "", { check: filled, suggestions: vhosts.map(({ name }) => name) }),
  ];
}
