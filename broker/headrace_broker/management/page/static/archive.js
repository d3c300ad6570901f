// What a queue keeps of settled messages, and how far those have come who read it.

import { change, get, path } from "./api.js";
import { confirm, notice, tell } from "./dialog.js";
import { h } from "./dom.js";
import { count, duration, bytes } from "./format.js";
import { facts, section } from "./part.js";
import { Table } from "./table.js";

const AGAIN_MS = 5_000; // between two looks, for the leader is asked

const KEPT = { full: "messages", headers: "messages without bodies", none: "nothing more" };

/** Whether a queue, as GET /api/queues/V/Q gives it, has an archive or is to have one. */
export function hasArchive(queue) {
  const wanted = queue.effective_policy_definition?.archive ?? queue.arguments?.["x-archive"] ?? "none";
  return wanted !== "none" || queue.archived_messages > 0;
}

export class Archive {
  constructor(vhost, name) {
    this.place = [vhost, name];
    this.looked = 0;
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.facts = h("div", {});
    this.groups = new Table("Groups that read the archive", this.columns(), { sort: ["lag", true], empty: "Nobody reads it: rows go when they are too old or too many." });
    this.element = section("Archive", this.problem, this.facts, h("h3", {}, "Groups that read it"), this.groups.element);
    this.element.hidden = true;
  }

  columns() {
    return [
      { id: "name", title: "Group", wide: true, value: (row) => row.name, cell: (row) => ({ text: row.name, act: () => this.ask(row) }) },
      { id: "lag", title: "Behind", number: true, value: (row) => row.lag, cell: (row) => count(row.lag), help: "Rows that it is not done with" },
      { id: "committed", title: "Done up to", number: true, level: 2, value: (row) => row.committed, cell: (row) => count(row.committed) },
      { id: "said", title: "Heard", number: true, value: (row) => row.committed_ms, cell: (row) => `${duration(Math.max(0, Date.now() - row.committed_ms))} ago` },
    ];
  }

  /** Say what there is now, where the queue has an archive. */
  async load(queue) {
    this.element.hidden = !hasArchive(queue);
    if (!this.element.hidden) await this.look();
  }

  /** The queue has changed: look again, unless that was a moment ago. */
  update() {
    if (!this.element.hidden && performance.now() - this.looked > AGAIN_MS) this.look();
  }

  async look() {
    this.looked = performance.now();
    try {
      const found = await get(path("queues", ...this.place, "archive"));
      this.problem.hidden = true;
      this.facts.replaceChildren(facts(archiveFacts(found)));
      this.groups.update(found.groups.map((group) => [group.name, group]));
    } catch (refusal) {
      tell(this.problem, refusal);
    }
  }

  ask(group) {
    confirm({
      title: `Close group “${group.name}”?`,
      text: `Nothing is kept for it any more; it has not read ${count(group.lag)} rows. Who works for it is refused, and begins anew when it opens the group again.`,
      action: "Close group",
      act: async () => {
        await change("DELETE", path("queues", ...this.place, "archive", "groups", group.name));
        notice(`Group “${group.name}” was closed.`);
        await this.look();
      },
    });
  }
}

function archiveFacts(found) {
  const day = (at) => (at > 0 ? new Date(at).toLocaleString() : "–");
  return [
    ["Keeps", KEPT[found.archive] ?? found.archive],
    ["Messages", count(found.messages)],
    ["Their bodies", bytes(found.message_bytes)],
    ["Rows", found.messages > 0 ? `${count(found.first_index)} to ${count(found.next_index - 1)}` : `none; the next is ${count(found.next_index)}`],
    ["Settled first", day(found.first_settled_ms)],
    ["Settled last", day(found.last_settled_ms)],
  ];
}
