// Why something is slow: one sentence, what to do, and who causes it.

import { h, setAttribute, setText } from "./dom.js";
import { count, bytes, percent, rate } from "./format.js";
import { connectionHref, LIMITS, shareCell } from "./part.js";
import { Table } from "./table.js";

const KINDS = {
  connection: "connection",
  stream: "gRPC stream",
  expiry: "messages that expire",
  "dead-letters": "dead letters",
  replay: "a replay",
  republish: "messages that are moved",
  others: "further clients",
};

export class Why {
  constructor() {
    this.sentence = h("p", { class: "sentence" }, "…");
    this.hint = h("p", { class: "hint" });
    this.shares = new Table("Parts of the time by limit", SHARE_COLUMNS, { sort: ["ten", true], empty: "Nothing has stopped it in the last minute." });
    this.causes = new Table("Who causes it", CAUSE_COLUMNS, { sort: ["share", true], empty: "Nobody has brought anything lately." });
    this.shareHead = h("h3", {}, "Stopped by");
    this.missing = h("p", { class: "notice" });
    this.element = h("div", { class: "why" }, this.sentence, this.hint, this.missing,
      this.shareHead, this.shares.element, h("h3", {}, "Causes"), this.causes.element);
  }

  /** Say why there is nothing to say. */
  problem(text) {
    setText(this.sentence, capital(text));
    setText(this.hint, "");
    this.shares.update([]);
    this.causes.update([]);
  }

  update(why) {
    setText(this.sentence, capital(why.sentence));
    setAttribute(this.sentence, "data-limit", why.limit ?? "none");
    setText(this.hint, why.hint ? `${capital(why.hint)}.` : "");
    setText(this.missing, why.missing.length > 0 ? `No answer from ${why.missing.join(", ")}: what they know lacks here.` : "");
    const shares = Object.entries(why.by_limit).map(([limit, parts]) => [limit, { limit, ...parts, binds: limit === why.limit }]);
    this.shareHead.hidden = why.kind !== "connection";
    this.shares.element.hidden = why.kind !== "connection";
    this.shares.update(shares);
    this.causes.update(why.causes.map((cause, at) => [`${at} ${cause.account} ${cause.queue}`, cause]));
  }
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Who an account belongs to, for people. */
export function accountName(cause) {
  if (cause.kind === "unknown") return "not known";
  if (cause.kind !== "connection" && cause.kind !== "stream") return `${KINDS[cause.kind] ?? cause.kind} on ${cause.node || "a node"}`;
  if (!cause.name) return "another user's connection";
  return cause.user_provided_name || cause.name.split(" -> ")[0];
}

function causeCell(cause) {
  const text = cause.gone ? `${accountName(cause)}, gone` : accountName(cause);
  const title = cause.user ? `${cause.name}, user ${cause.user}, node ${cause.node}` : "";
  return cause.kind === "connection" && cause.account && !cause.gone ? { text, title, href: connectionHref(cause.account) } : { text, title };
}

const shareOf = (name) => (row) => shareCell(row[name]);

const SHARE_COLUMNS = [
  { id: "limit", title: "Limit", wide: true, value: (row) => row.limit, cell: (row) => ({ text: row.limit, tone: row.binds ? "warn" : "", title: LIMITS[row.limit] }) },
  { id: "one", title: "1 s", number: true, value: (row) => row.last_1s, cell: shareOf("last_1s") },
  { id: "ten", title: "10 s", number: true, value: (row) => row.last_10s, cell: shareOf("last_10s") },
  { id: "sixty", title: "60 s", number: true, value: (row) => row.last_60s, cell: shareOf("last_60s") },
];

const CAUSE_COLUMNS = [
  { id: "who", title: "Who", wide: true, value: accountName, cell: causeCell },
  { id: "queue", title: "Queue", level: 2, value: (row) => row.queue, cell: (row) => row.queue || "–" },
  { id: "share", title: "Share", help: "of what stands in the queue where that is what stops publishers; else of the bytes that are owed and those of the last 10 s", number: true, value: (row) => row.share, cell: (row) => ({ text: percent(row.share), bar: row.share }) },
  { id: "queued", title: "In the queue", help: "messages there that it brought, where shares are of what stands in the queue", number: true, level: 2, value: (row) => row.queued_messages, cell: (row) => (row.queued_messages ? { text: count(row.queued_messages), title: bytes(row.queued_bytes) } : "–") },
  { id: "rate", title: "Brings", number: true, level: 2, value: (row) => row.message_rate, cell: (row) => rate(row.message_rate) },
  { id: "owed", title: "Owes", number: true, level: 3, value: (row) => row.byte_count, cell: (row) => ({ text: count(row.messages), title: bytes(row.byte_count) }) },
];
