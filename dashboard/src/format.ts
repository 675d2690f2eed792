// Formats numbers, times and names for display.

const MINUTE = 60, HOUR = 3600, DAY = 86_400;
type Count = number | string | null | undefined;

export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 2 * MINUTE) return `${whole} s`;
  if (whole < 2 * HOUR) return `${Math.floor(whole / MINUTE)} min`;
  if (whole < 2 * DAY) return `${Math.floor(whole / HOUR)} h`;
  return `${Math.floor(whole / DAY)} days`;
}

/** The server's clock minus the browser's clock, so that ages are right if the browser's clock is wrong. */
let clockOffset = 0;
export const setServerTime = (date: string): void => { clockOffset = Date.parse(date) - Date.now() || 0; };
export const serverNow = (): number => Date.now() + clockOffset;

export function ago(at: string | null | undefined): string {
  if (!at) return "–";
  const seconds = (serverNow() - Date.parse(at)) / 1000;
  return seconds < -1 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`;
}

export const timeOfDay = (at?: string): string => (at ? new Date(at).toLocaleTimeString() : "–");
export const dateTime = (at?: string | null): string => (at ? new Date(at).toLocaleString() : "–");

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
export function bytes(count: Count): string {
  let value = Number(count ?? 0), unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export const megabytes = (count: Count): string => bytes(Number(count ?? 0) * 1024 * 1024);
export const cores = (count: Count): string => `${Number(Number(count ?? 0).toFixed(2))} cores`;
export const gigabytes = (count: Count): string => `${Number(count ?? 0)} GB`;
export const percent = (part: number, whole: number): number => (whole > 0 ? Math.round((100 * part) / whole) : 0);
export const counted = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`;

/** WorkloadStopAsked → workload stop asked */
export const words = (kind?: string): string => (kind ?? "").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
