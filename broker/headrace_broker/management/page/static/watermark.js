// Which policy gives one queue its watermarks. Pure.

const PREFIX = "watermark.";
export const MARKS = ["high-watermark", "low-watermark", "high-watermark-bytes", "low-watermark-bytes"];

/** A pattern that fits this name and no other. */
export function exactly(name) {
  return `^${name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")}$`;
}

/**
 * What to do so that a queue has watermarks: put a policy that fits only it, with all that the
 * policy says that applies to it now, because one policy applies at a time.
 *
 * @param queue {name, policy}: name of the policy that applies now, null for none.
 * @param policies of its vhost.
 * @param marks by the names of MARKS; null for one that is not to be said.
 * @return {name, body, created}
 */
export function plan(queue, policies, marks) {
  const applied = policies.find(({ name }) => name === queue.policy);
  const pattern = exactly(queue.name);
  const own = applied !== undefined && applied.pattern === pattern;
  const name = own ? applied.name : PREFIX + queue.name;
  const definition = { ...applied?.definition };
  for (const mark of MARKS) {
    delete definition[mark];
    if (marks[mark] !== null) definition[mark] = marks[mark];
  }
  const priority = own ? applied.priority : (applied?.priority ?? -1) + 1;
  return { name, created: !own, body: { pattern, definition, priority, "apply-to": "queues" } };
}

/** Bytes out of "64 MiB", "1.5g" or "1024"; null for "", NaN for what is none. */
export function parseBytes(text) {
  const match = /^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?\s*$/i.exec(text);
  if (text.trim() === "") return null;
  if (match === null) return NaN;
  return Math.round(Number(match[1]) * 1024 ** "kmgt".indexOf(match[2].toLowerCase() || "k") * (match[2] ? 1024 : 1));
}

/** A whole number; null for "", NaN for what is none. */
export function parseCount(text) {
  const bare = text.replace(/[\s\u202f_,]/g, "");
  if (bare === "") return null;
  return /^[0-9]{1,15}$/.test(bare) ? Number(bare) : NaN;
}

/** What the queue's own arguments say of watermarks: a policy can only lower these. */
export function declared(queue) {
  return MARKS.filter((mark) => queue.arguments?.[`x-${mark}`] !== undefined)
    .map((mark) => `x-${mark}: ${queue.arguments[`x-${mark}`]}`);
}
