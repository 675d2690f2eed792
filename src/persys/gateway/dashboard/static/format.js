// Formats numbers, times and names for display.

const MINUTE = 60, HOUR = 3600, DAY = 86400;

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 2 * MINUTE) return `${whole} s`;
  if (whole < 2 * HOUR) return `${Math.floor(whole / MINUTE)} min`;
  if (whole < 2 * DAY) return `${Math.floor(whole / HOUR)} h`;
  return `${Math.floor(whole / DAY)} days`;
}

/** The server's clock minus the browser's clock, so that ages are right if the browser's clock is wrong. */
let clockOffset = 0;
export const setServerTime = (date) => { clockOffset = Date.parse(date) - Date.now() || 0; };
const now = () => Date.now() + clockOffset;

export function ago(at) {
  if (!at) return "–";
  const seconds = (now() - Date.parse(at)) / 1000;
  return seconds < -1 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`;
}

export const timeOfDay = (at) => (at ? new Date(at).toLocaleTimeString() : "–");
export const dateTime = (at) => (at ? new Date(at).toLocaleString() : "–");

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
export function bytes(count) {
  let value = Number(count ?? 0), unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export const megabytes = (count) => bytes(Number(count ?? 0) * 1024 * 1024);
export const cores = (count) => `${Number((count ?? 0).toFixed(2))} cores`;
export const gigabytes = (count) => `${Number(count ?? 0)} GB`;
export const percent = (part, whole) => (whole > 0 ? Math.round((100 * part) / whole) : 0);
export const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** WorkloadStopAsked → workload stop asked */
export const words = (kind) => (kind ?? "").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
