// Axes: round steps, and where values lie on them. Pure.

/** Round ticks from 0 to at least `most`, some `wanted` of them. */
export function ticks(most, wanted = 4) {
  if (!(most > 0)) return [0, 1];
  const rough = most / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  return multiples(step, most);
}

/** The same for bytes: steps are powers of two, so that units stay round. */
export function byteTicks(most, wanted = 4) {
  if (!(most > 0)) return [0, 1024];
  return multiples(2 ** Math.ceil(Math.log2(most / wanted)), most);
}

function multiples(step, most) {
  const found = [];
  for (let at = 0; found.length < 2 || found.at(-1) < most; at += 1) found.push(at * step);
  return found;
}

/** Ticks of time between two Unix times in milliseconds, some `wanted` of them. */
export function timeTicks(from, to, wanted = 4) {
  const steps = [5, 10, 15, 30, 60, 120, 300, 600].map((each) => each * 1000);
  const step = steps.find((each) => (to - from) / each <= wanted) ?? steps.at(-1);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}

/** The path of a line through points [x, y]; a gap where y is null. */
export function linePath(found) {
  let text = "";
  let drawing = false;
  for (const [x, y] of found) {
    if (y === null) {
      drawing = false;
      continue;
    }
    text += `${drawing ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    drawing = true;
  }
  return text;
}
