// Figures as people read them. A thin space stands between thousands and before units.

const THIN = "\u202f";
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 1234567 -> "1 234 567"; nothing known -> a dash. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

/** 1234567 -> "1.23M", for where there is little room. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  const steps = [[1e9, "G"], [1e6, "M"], [1e4, "k", 1e3]];
  for (const [from, unit, by = from] of steps) {
    if (Math.abs(value) >= from) return three(value / by) + unit;
  }
  return count(value);
}

function three(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

/** Bytes with a binary unit. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let step = 0;
  let amount = value;
  while (Math.abs(amount) >= 1024 && step < BYTES.length - 1) {
    amount /= 1024;
    step += 1;
  }
  const text = step === 0 || Number.isInteger(amount) || Math.abs(amount) >= 100 ? amount.toFixed(0) : amount.toFixed(1);
  return `${text}${THIN}${BYTES[step]}`;
}

/** Per second. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 9.95) return `${value.toFixed(1)}${THIN}/s`;
  return `${value >= 1e6 ? short(value) : count(value)}${THIN}/s`;
}

/** A part from 0 to 1. */
export function percent(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.01) return `<${THIN}1${THIN}%`;
  return `${Math.round(value * 100)}${THIN}%`;
}

/** Milliseconds. */
export function duration(value) {
  if (value === null || value === undefined) return "–";
  const seconds = value / 1000;
  if (seconds < 9.95) return `${seconds.toFixed(1)}${THIN}s`;
  if (seconds < 120) return `${Math.round(seconds)}${THIN}s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)}${THIN}min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)}${THIN}h`;
  return `${Math.round(seconds / 86400)}${THIN}d`;
}

/** Unix time in milliseconds as a time of day. */
export function clock(value) {
  return new Date(value).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

/** The client's end of a connection's name. */
export function peer(name) {
  return name.split(" -> ")[0];
}

/** One thing, two things. */
export function plural(value, word) {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}
