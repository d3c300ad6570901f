// What stops somebody, out of the field `flow` of connections and channels. Pure.

const LATELY_MIN = 0.05; // of the last ten seconds; less is no more than a blink

/** The limit that stops something, or took most of its last ten seconds: {limit, queue, now}. */
export function lately(flow) {
  if (flow.limit) return { limit: flow.limit, queue: flow.queue ?? "", now: true };
  const found = Object.entries(flow.by_limit).filter(([, parts]) => parts.last_10s >= LATELY_MIN);
  const [limit, parts] = found.sort(([, one], [, other]) => other.last_10s - one.last_10s)[0] ?? ["", {}];
  return { limit, queue: parts.queue ?? "", now: false };
}
