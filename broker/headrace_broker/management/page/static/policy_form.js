// The form of policies, and of the operator's.

import { change, get, path } from "./api.js";
import { choice, fixed, newName, settings, text } from "./field.js";
import { checkNew, openForm } from "./record_form.js";
import { OPERATOR_SETTINGS, POLICY_SETTINGS } from "./setting.js";
import { remove } from "./user_form.js";

const APPLY_TO = [["all", "queues and exchanges"], ["queues", "queues"], ["quorum_queues", "quorum queues"], ["classic_queues", "classic queues"], ["exchanges", "exchanges"]];

/** What the two kinds are called, and where they are. */
export const KINDS = {
  policy: { word: "policy", one: "a policy", part: "policies", known: POLICY_SETTINGS, choices: APPLY_TO },
  operator: { word: "operator policy", one: "an operator policy", part: "operator-policies", known: OPERATOR_SETTINGS, choices: APPLY_TO.filter(([name]) => name !== "exchanges") },
};

/** Make a policy (`row` null) or change one. */
export async function openPolicy(kind, row, done) {
  const { word, part, known, choices } = KINDS[kind];
  openForm({
    title: row === null ? `New ${word}` : `${word.charAt(0).toUpperCase()}${word.slice(1)} “${row.name}” in vhost “${row.vhost}”`,
    action: row === null ? `Add ${word}` : "Save",
    fields: [
      ...(await placeFields(row)),
      text("pattern", "Pattern", row?.pattern ?? "", { hint: "A regular expression that is found in names: ^orders\\. fits those that begin so." }),
      choice("apply-to", "Applies to", row?.["apply-to"] ?? "queues", choices),
      text("priority", "Priority", String(row?.priority ?? 0), { inputmode: "numeric", hint: "Of several that fit, the highest applies.", check: (given) => (/^-?[0-9]{1,10}$/.test(given.trim()) ? "" : "must be a whole number") }),
      settings("definition", "Says", row?.definition ?? {}, known, { hint: "Bytes may have units, as in 64 MiB; a text that looks like a number is put in quotes." }),
    ],
    save: (values) => save(KINDS[kind], row, values),
    remove: row && {
      title: `Delete ${word} “${row.name}”?`,
      text: "For what it applies to, the next one that fits counts at once, or none.",
      act: () => remove(path(part, row.vhost, row.name), `The ${word} “${row.name}” was deleted.`),
    },
    done,
  });
}

async function placeFields(row) {
  if (row !== null) return [fixed("vhost", row.vhost), fixed("name", row.name)];
  const vhosts = (await get("/api/vhosts")).map(({ name }) => [name, name]);
  return [choice("vhost", "Vhost", "/", vhosts), newName()];
}

async function save({ part, word, one }, row, { vhost, name, priority, ...body }) {
  if (row === null) checkNew(await get(path(part, vhost)), (policy) => policy.name === name, one);
  await change("PUT", path(part, vhost, name), { ...body, priority: Number(priority) });
  return `The ${word} “${name}” was ${row === null ? "added" : "changed"}.`;
}
