// The form of vhosts.

import { change, get, path } from "./api.js";
import { choice, fixed, newName, settings, tags, text } from "./field.js";
import { checkNew, openForm } from "./record_form.js";
import { VHOST_LIMITS } from "./setting.js";
import { remove, setLimits } from "./user_form.js";

const TYPES = [["undefined", "quorum, unless a client asks for another"], ["quorum", "quorum"], ["classic", "classic"]];

/** Make a vhost (`row` null) or change one. */
export async function openVhost(row, done) {
  const limits = row === null ? {} : ((await get(path("vhost-limits", row.name)))[0]?.value ?? {});
  const known = { there: row !== null, limits };
  openForm({
    title: row === null ? "New vhost" : `Vhost “${row.name}”`,
    action: row === null ? "Add vhost" : "Save",
    fields: [
      row === null ? newName() : fixed("name", row.name),
      text("description", "Description", row?.description ?? ""),
      tags("tags", "Tags", row?.tags ?? [], []),
      choice("default_queue_type", "Queues are by default", row?.default_queue_type ?? "undefined", TYPES),
      settings("limits", "Limits", limits, VHOST_LIMITS),
    ],
    save: (values) => save(known, row === null, values),
    remove: row && {
      title: `Delete vhost “${row.name}”?`,
      text: "All that is in it goes for good: queues with their messages, exchanges, bindings, policies, permissions. Its connections are closed.",
      act: () => remove(path("vhosts", row.name), `Vhost “${row.name}” was deleted.`),
    },
    done,
  });
}

async function save(known, fresh, { name, limits, ...body }) {
  if (!known.there) checkNew(await get("/api/vhosts"), (vhost) => vhost.name === name, "a vhost");
  await change("PUT", path("vhosts", name), body);
  known.there = true;
  await setLimits("vhost-limits", name, known, limits);
  return `Vhost “${name}” was ${fresh ? "added" : "changed"}.`;
}
