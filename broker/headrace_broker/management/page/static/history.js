// Points over time that this tab has seen, kept while it is open; bounded.

const POINTS_MAX = 900; // a quarter of an hour at one a second
const SERIES_MAX = 64;

const kept = new Map();

/** The points of something: [{at, ...figures}], the oldest first. */
export function points(key) {
  let found = kept.get(key);
  if (found === undefined) {
    found = [];
    if (kept.size >= SERIES_MAX) kept.delete(kept.keys().next().value);
    kept.set(key, found);
  }
  return found;
}

/** Add a point; one for a time that is there already takes its place. */
export function add(key, point) {
  const found = points(key);
  const last = found.at(-1);
  if (last !== undefined && point.at <= last.at) found.pop();
  found.push(point);
  if (found.length > POINTS_MAX) found.splice(0, found.length - POINTS_MAX);
  return found;
}

/** Put points before those that are there: what the node remembers from before. */
export function prepend(key, older) {
  const found = points(key);
  const first = found.length > 0 ? found[0].at : Infinity;
  found.unshift(...older.filter((each) => each.at < first).slice(-POINTS_MAX));
  return found;
}
