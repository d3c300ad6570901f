// Small pieces that several views are made of.

import { h, setAttribute, setText } from "./dom.js";
import { lately } from "./limit.js";
import { count, duration, bytes, peer, percent } from "./format.js";

/** A heading with what belongs below it. */
export function section(title, ...children) {
  return h("section", { class: "section" }, h("h2", {}, title), children);
}

/** A figure with its name; `update(text, note, tone)` says it anew. */
export function tile(name) {
  const value = h("dd", { class: "tile-value" });
  const note = h("dd", { class: "tile-note" });
  const element = h("div", { class: "tile" }, h("dt", {}, name), value, note);
  return {
    element,
    update(text, more = "", tone = null) {
      setText(value, text);
      setText(note, more);
      setAttribute(element, "data-tone", tone);
    },
  };
}

/** Messages beside those that are ready and at consumers: delayed ones, dead letters that are kept. */
export function laterText(messages) {
  return messages > 0 ? `and ${count(messages)} delayed or kept as dead letters` : "";
}

/** How a state stands. */
export const TONES = { running: "good", flow: "warn", blocking: "warn", blocked: "bad", down: "bad" };

/** What each limit is, in a few words. */
export const LIMITS = {
  account: "what it has caused is not done",
  credit: "its channel has no credit",
  "queue-commands": "the queue has not applied its batches",
  "queue-pending-bytes": "the queue has not applied what publishers handed over",
  watermark: "the queue holds more than its watermark",
  "memory-alarm": "a node's memory",
  "disk-alarm": "a node's disk",
  "publish-rate": "the publish rate of its user or vhost",
  intake: "deliveries go first on its node",
  "node-buffer-bytes": "the publish buffers of its node are full",
  "queue-outflow": "the queue takes no more than leaves it",
  leaderless: "the queue has no leader that can be reached",
};

/** A cell with a state. */
export function stateCell(row) {
  return { text: row.state ?? "–", tone: TONES[row.state] ?? "" };
}

/** A cell with a part of the last ten seconds, as a bar too. */
export function shareCell(share) {
  return { text: share > 0 ? percent(share) : "–", bar: share, mark: share > 0.5 ? "bad" : share > 0 ? "warn" : null };
}

/** A cell with that limit, and with the queue behind it where that is wanted. */
export function limitCell(row, withQueue = false) {
  const { limit, queue, now } = lately(row.flow);
  if (!limit) return "–";
  const when = now ? `for ${since(row.flow)}` : "within the last 10 s";
  return { text: withQueue && queue ? `${limit}: ${queue}` : limit, tone: now ? "warn" : "", title: `${LIMITS[limit]}, ${when}` };
}

/** The name of a connection as people know it: what it calls itself, or where it comes from. */
export function clientName(row) {
  return row.user_provided_name || peer(row.name);
}

/** Where a queue has its page; the same as the key that the node gives it. */
export function queueHref(row) {
  return `#/queues/${encodeURIComponent(row.vhost)}/${encodeURIComponent(row.name ?? row.queue)}`;
}

export function connectionHref(id) {
  return `#/connections/${encodeURIComponent(id)}`;
}

/** How full a queue is against its high watermark, null where it has none. */
export function fullness(row) {
  const marks = row.watermarks ?? {};
  const parts = [];
  if (marks.high_bytes) parts.push((row.message_bytes ?? 0) / marks.high_bytes);
  if (marks.high) parts.push((row.messages_held ?? (row.messages_ready ?? 0) + (row.messages_unacknowledged ?? 0)) / marks.high);
  return parts.length > 0 ? Math.max(...parts) : null;
}

/** Watermarks in words. */
export function marksText(marks) {
  const found = [];
  if (marks?.high_bytes) found.push(`${bytes(marks.high_bytes)} / ${bytes(marks.low_bytes)}`);
  if (marks?.high) found.push(`${count(marks.high)} / ${count(marks.low)} messages`);
  return found.join(", ") || "none";
}

/** For how long a limit has stopped something, "" where it does not. */
export function since(flow) {
  return flow?.limit ? duration(flow.since_ms) : "";
}

/** A field for what names have to hold; `/` goes there. */
export function filterField(value, on) {
  let timer = 0;
  const field = h("input", { type: "search", value, placeholder: "Filter", "aria-label": "Filter", autocomplete: "off", spellcheck: "false", "data-filter": "" });
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => on(field.value.trim()), 250);
  });
  return field;
}

/** What a list lacks, in words. */
export function lacks(more, word) {
  if (!more) return "";
  const texts = [];
  if (more.problem) texts.push(more.problem);
  if (more.total > more.shown) texts.push(`${count(more.shown)} of ${count(more.total)} ${word}, the most loaded ones: filter to find others`);
  if (more.missing?.length > 0) texts.push(`no answer from ${more.missing.join(", ")}`);
  return texts.join("; ");
}

/** A definition list of facts: [[name, text or element]]. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
