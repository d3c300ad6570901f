// What the node remembers of a queue from before, as points. Pure.

const COUNTERS = { publish: "arrived", deliver_get: "delivered", ack: "settled" };

/** Points [{at, ready, unacked, arrived, ...}] out of an answer with samples, the oldest first. */
export function olderPoints(queue) {
  const points = new Map();
  const put = (at, name, value) => {
    if (!points.has(at)) points.set(at, { at });
    points.get(at)[name] = value;
  };
  for (const { sample, timestamp } of queue.messages_ready_details?.samples ?? []) put(timestamp, "ready", sample);
  for (const { sample, timestamp } of queue.messages_unacknowledged_details?.samples ?? []) put(timestamp, "unacked", sample);
  for (const [counter, name] of Object.entries(COUNTERS)) {
    const samples = [...(queue.message_stats?.[`${counter}_details`]?.samples ?? [])].sort((one, other) => one.timestamp - other.timestamp);
    samples.slice(1).forEach((each, at) => {
      const before = samples[at];
      const seconds = (each.timestamp - before.timestamp) / 1000;
      if (seconds > 0) put(each.timestamp, name, Math.max(0, each.sample - before.sample) / seconds);
    });
  }
  return [...points.values()].sort((one, other) => one.at - other.at);
}
