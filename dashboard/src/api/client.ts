// The HTTP client of the gateway. Errors are thrown as Problem.

import { setServerTime } from "../format";
import { Problem } from "./problem";
import { OPERATIONS, type ApplyWorkloadRequest, type EventView, type Operations } from "./schema";
import { cluster, token } from "./session";

const DEADLINE_MS = 20_000;
const PAGE = 1000;
const RETRY_MS = [100, 400];
const NEXT = "X-Next-Cursor";
const JSON_TYPE = { "Content-Type": "application/json" };

export type Clusters = Operations["ListClusters"]["response"];
type Name = keyof Operations;
type Request<N extends Name> = Operations[N]["request"];
type Response_<N extends Name> = Operations[N]["response"];

export const segment = encodeURIComponent;

/** The URL of a path of /api/v1 in the selected cluster. */
export function urlOf(path: string): string {
  const selected = cluster.get();
  return selected ? `/api/v1/clusters/${segment(selected)}${path}` : `/api/v1${path}`;
}

export async function send(url: string, options: RequestInit): Promise<Response> {
  let response: Response;
  const secret = token.get();
  const headers = { Accept: "application/json", ...(secret && { Authorization: `Bearer ${secret}` }), ...options.headers };
  try {
    response = await fetch(url, { cache: "no-cache", ...options, headers });
  } catch (error) {
    if (options.signal?.aborted && options.signal.reason?.name === "AbortError") throw error;
    throw new Problem(0, "The gateway does not respond.");
  }
  const date = response.headers.get("Date");
  if (date) setServerTime(date);
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response: Response): Promise<Problem> {
  // Without a JSON body the response is not one of the gateway: the status is enough.
  const body = await response.json().catch(() => ({}));
  return new Problem(response.status, body.detail || body.title || `The gateway returned ${response.status}.`, body);
}

/** The response body, and the cursor of the next page if there is one. */
async function request(url: string, options: RequestInit = {}): Promise<[unknown, string | null]> {
  const response = await withRetries(() => send(url, { ...options, signal: AbortSignal.timeout(DEADLINE_MS) }));
  try {
    return [await response.json(), response.headers.get(NEXT)];
  } catch {
    throw new Problem(0, "The response of the gateway was incomplete.");
  }
}

/** Browsers abort requests when the network of the host changes. Reads, and changes with an idempotency key, are
 * repeated, unless they have timed out. */
async function withRetries<T>(work: () => Promise<T>): Promise<T> {
  for (const pause of RETRY_MS) {
    const startedAt = Date.now();
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 0 || Date.now() - startedAt >= DEADLINE_MS) throw error;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
  return work();
}

/** Calls an operation of the API. With its idempotency key a change is performed once, even if it is sent twice. */
export async function call<N extends Name>(name: N, fields: Request<N>): Promise<Response_<N>> {
  const [url, options] = requestOf(name, fields as Record<string, unknown>);
  return (await request(urlOf(url), options))[0] as Response_<N>;
}

export function requestOf(name: Name, fields: Record<string, unknown>): [string, RequestInit] {
  const [method, template, hasBody] = OPERATIONS[name];
  const rest = { ...fields };
  const path = template.replace(/\{(\w+)\}/g, (_, field: string) => {
    if (!hasBody) delete rest[field];
    return segment(String(fields[field] ?? ""));
  });
  const key: Record<string, string> = method === "GET" ? {} : { "Idempotency-Key": randomKey() };
  if (hasBody) return [path, { method, body: JSON.stringify(rest), headers: { ...JSON_TYPE, ...key } }];
  const query = queryOf(rest);
  return [query ? `${path}?${query}` : path, { method, headers: key }];
}

export function queryOf(fields: Record<string, unknown>): string {
  const pairs = Object.entries(fields).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).filter((one) => one !== undefined && one !== "").map((one) => [name, String(one)]));
  return new URLSearchParams(pairs as [string, string][]).toString();
}

const randomKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export const clusters = async () => (await request("/clusters"))[0] as Clusters;

export interface ParsedSpecs {
  workloads: ApplyWorkloadRequest[];
  lines: number[];
}

export async function parseSpecs(text: string): Promise<ParsedSpecs> {
  const options = { method: "POST", body: text, headers: { "Content-Type": "application/yaml" } };
  return (await request("/api/v1/specs/parse", options))[0] as ParsedSpecs;
}

/** The newest events that match, oldest first, and the sequence number of the newest event of all. */
export async function events(query: Request<"ListEvents">): Promise<{ events: EventView[]; last: string }> {
  const response = await call("ListEvents", query);
  return { events: response.events ?? [], last: response.last_sequence ?? "0" };
}

/** A long list, page by page. `onPage` gets the items so far after each page. */
export async function pages<T>(name: Name, field: string, onPage?: (all: T[]) => void): Promise<T[]> {
  const all: T[] = [];
  let cursor = "";
  do {
    const [path, options] = requestOf(name, { limit: PAGE, cursor });
    const [body, next] = await request(urlOf(path), options);
    all.push(...(((body as Record<string, unknown>)[field] as T[] | undefined) ?? []));
    cursor = next ?? "";
    onPage?.(all);
  } while (cursor);
  return all;
}
