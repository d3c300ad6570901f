// What the node remembers of a queue from before, as points. Pure.

/** How far back is asked for, and in which steps. */
export const AGES = "lengths_age=600&lengths_incr=5&msg_rates_age=600&msg_rates_incr=5";

const COUNTERS = { publish: "arrived", deliver_get: "delivered", ack: "settled" };

/** Points [{at, ready, unacked, arrived, ...}] out of GET /api/queues/V/Q, the oldest first. */
export function olderPoints(queue) {
  return pointsOf(queue, queue.message_stats, COUNTERS);
}

/** The same out of GET /api/overview. */
export function olderTotals(overview) {
  return pointsOf(overview.queue_totals ?? {}, overview.message_stats, { publish: "publish", confirm: "confirm", deliver_get: "deliver", ack: "ack" });
}

function pointsOf(lengths, stats, counters) {
  const points = new Map();
  const put = (at, name, value) => {
    if (!points.has(at)) points.set(at, { at });
    points.get(at)[name] = value;
  };
  for (const { sample, timestamp } of lengths.messages_ready_details?.samples ?? []) put(timestamp, "ready", sample);
  for (const { sample, timestamp } of lengths.messages_unacknowledged_details?.samples ?? []) put(timestamp, "unacked", sample);
  for (const [counter, name] of Object.entries(counters)) {
    const samples = [...(stats?.[`${counter}_details`]?.samples ?? [])].sort((one, other) => one.timestamp - other.timestamp);
    samples.slice(1).forEach((each, at) => {
      const before = samples[at];
      const seconds = (each.timestamp - before.timestamp) / 1000;
      if (seconds > 0) put(each.timestamp, name, Math.max(0, each.sample - before.sample) / seconds);
    });
  }
  return [...points.values()].sort((one, other) => one.at - other.at);
}
