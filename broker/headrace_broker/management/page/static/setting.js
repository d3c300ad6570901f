// Settings of policies and limits: their names, how their values are written, and which field a
// refusal is about. Pure; a test holds the names against those that the node knows.

import { parseBytes } from "./watermark.js";

export const POLICY_SETTINGS = [
  "allow-immediate", "alternate-exchange", "archive", "archive-max-age", "archive-max-bytes", "archive-max-messages", "consumer-timeout",
  "dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy", "deduplication-size", "deduplication-ttl", "delayed-retry-max",
  "delayed-retry-min", "delayed-retry-type", "delivery-limit", "expires", "fairness-key", "high-watermark", "high-watermark-bytes",
  "low-watermark", "low-watermark-bytes", "max-in-memory-bytes", "max-in-memory-length", "max-length", "max-length-bytes",
  "message-deduplication", "message-ttl", "overflow", "publisher-retention", "queue-leader-locator", "queue-mode", "queue-version",
  "target-group-size",
];

export const OPERATOR_SETTINGS = [
  "archive-max-age", "archive-max-bytes", "archive-max-messages", "deduplication-size", "deduplication-ttl", "delayed-retry-max",
  "delayed-retry-min", "delayed-retry-type", "delivery-limit", "expires", "high-watermark", "high-watermark-bytes", "low-watermark",
  "low-watermark-bytes", "max-in-memory-bytes", "max-in-memory-length", "max-length", "max-length-bytes", "message-ttl", "overflow",
  "publisher-retention", "queue-version", "target-group-size",
];

export const USER_LIMITS = ["blocked-after-ms", "channel-flow", "max-channels", "max-connections", "publish-rate-bytes", "publish-rate-messages", "publish-weight"];

export const VHOST_LIMITS = [
  "blocked-after-ms", "channel-flow", "default-queue-high-watermark", "default-queue-high-watermark-bytes", "default-queue-low-watermark",
  "default-queue-low-watermark-bytes", "default-queue-max-length", "default-queue-max-length-bytes", "max-connections", "max-queues",
  "publish-rate-bytes", "publish-rate-messages",
];

/** What a field can be seen to have wrong before the node is asked. */
export class Wrong extends Error {}

/**
 * The value that a text stands for: true, false, a whole number, what JSON says where it begins
 * with a quote, otherwise the text. Settings of bytes take units, too.
 *
 * @throws Wrong where it is none.
 */
export function read(name, text) {
  const bare = text.trim();
  if (bare === "") throw new Wrong(`'${name}' has no value; an empty text is written ""`);
  if (bare === "true" || bare === "false") return bare === "true";
  if (/^-?[0-9]+$/.test(bare)) return whole(name, bare);
  if (bare.startsWith('"')) return quoted(name, bare);
  const bytes = name.includes("-bytes") ? parseBytes(bare) : NaN;
  return Number.isSafeInteger(bytes) ? bytes : bare;
}

function whole(name, bare) {
  const value = Number(bare);
  if (!Number.isSafeInteger(value)) throw new Wrong(`'${name}' is too large a number`);
  return value;
}

function quoted(name, bare) {
  try {
    return JSON.parse(bare);
  } catch {
    throw new Wrong(`'${name}' begins with a quote and does not end with one`);
  }
}

/** How a value is written, so that it is read as the same. */
export function written(name, value) {
  if (typeof value !== "string") return JSON.stringify(value);
  const plain = value !== "" && !value.startsWith('"') && read(name, value) === value;
  return plain ? value : JSON.stringify(value);
}

/**
 * Settings out of rows of name and text; rows that are empty are none.
 *
 * @throws Wrong where one cannot be read, or a name comes twice.
 */
export function gathered(rows) {
  const found = new Map();
  for (const [given, text] of rows) {
    const name = given.trim();
    if (name === "" && text.trim() === "") continue;
    if (name === "") throw new Wrong(`the value '${text.trim()}' has no name`);
    if (found.has(name)) throw new Wrong(`'${name}' is there twice`);
    found.set(name, read(name, text));
  }
  return Object.fromEntries(found);
}

/** What turns some limits into others: [[name, value]], null for one that goes. */
export function changes(before, after) {
  const gone = Object.keys(before).filter((name) => !Object.hasOwn(after, name));
  const other = Object.entries(after).filter(([name, value]) => before[name] !== value);
  return [...gone.map((name) => [name, null]), ...other];
}

// How refusals of the node begin that do not name a field.
const BEGINNINGS = [[/^no user /, "user"], [/^no vhost /, "vhost"], [/^the \w+'s name /, "name"], [/^limit /, "limits"]];

/** The field that a refusal is about, "" where it is about none of them. */
export function blamed(reason, fields) {
  const named = /^([a-z_-]+)(?:\.[^:]*)?:/.exec(reason)?.[1];
  if (fields.includes(named)) return named;
  if (/^'[a-z-]*watermark/.test(reason)) return fields.find((field) => field === "definition" || field === "limits") ?? "";
  const found = BEGINNINGS.find(([beginning, field]) => beginning.test(reason) && fields.includes(field));
  return found?.[1] ?? "";
}

/** Why a name cannot be one, "" where it can: browsers take some for parts of a path. */
export function nameProblem(name) {
  if (name === "") return "must not be empty";
  return name === "." || name === ".." ? "browsers cannot ask for this name; the headrace command can" : "";
}
