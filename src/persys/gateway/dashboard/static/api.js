// HTTP client of the gateway. Errors are thrown as Problem; status 0 means no response.

import { setServerTime } from "./format.js";

const TOKEN = "persys.token", CLUSTER = "persys.cluster";
const DEADLINE_MS = 20000, PAGE = 1000;
const RETRY_MS = [100, 400];
const NEXT = "X-Next-Cursor";

export class Problem extends Error {
  constructor(status, detail, more = {}) {
    super(detail);
    this.status = status;
    this.more = more;
  }

  get isUnavailable() { return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504; }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (value) => (value ? sessionStorage.setItem(TOKEN, value) : sessionStorage.removeItem(TOKEN)),
};

export const cluster = {
  get: () => sessionStorage.getItem(CLUSTER) ?? "",
  set: (id) => (id ? sessionStorage.setItem(CLUSTER, id) : sessionStorage.removeItem(CLUSTER)),
};

/** The URL of a path of /api/v1 in the selected cluster. */
function urlOf(path) {
  const selected = cluster.get();
  return selected ? `/api/v1/clusters/${encodeURIComponent(selected)}${path}` : `/api/v1${path}`;
}

export const segment = encodeURIComponent;

function headers(more) {
  const secret = token.get();
  return { Accept: "application/json", ...(secret && { Authorization: `Bearer ${secret}` }), ...more };
}

async function send(url, options) {
  let response;
  try {
    response = await fetch(url, { cache: "no-cache", ...options, headers: headers(options.headers) });
  } catch (error) {
    if (options.signal?.aborted && options.signal.reason?.name === "AbortError") throw error;
    throw new Problem(0, "The gateway does not respond.");
  }
  const date = response.headers.get("Date");
  if (date) setServerTime(date);
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  let body = {};
  try { body = await response.json(); } catch { /* not a response of the gateway: the status is enough */ }
  const detail = body.detail || body.title || `The gateway returned ${response.status}.`;
  return new Problem(response.status, detail, body);
}

/** The response body, and the cursor of the next page if there is one. */
async function request(url, options = {}) {
  const response = await withRetries(() => send(url, { ...options, signal: AbortSignal.timeout(DEADLINE_MS) }));
  try {
    return [await response.json(), response.headers.get(NEXT)];
  } catch {
    throw new Problem(0, "The response of the gateway was incomplete.");
  }
}

/** Browsers abort requests when the network of the host changes. Reads, and changes with an idempotency key, are
 * repeated, unless they have timed out. */
async function withRetries(work) {
  for (const pause of RETRY_MS) {
    const startedAt = Date.now();
    try {
      return await work();
    } catch (problem) {
      if (problem.status !== 0 || Date.now() - startedAt >= DEADLINE_MS) throw problem;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
  return work();
}

const json = async (url, options) => (await request(url, options))[0];

export const get = (path) => json(urlOf(path));

/** A query that is too long for a URL. */
export const query = (path, body) =>
  json(urlOf(path), { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

/** A change. With the idempotency key it is performed once, even if it is sent twice. */
export function change(method, path, body) {
  const key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const content = body === undefined ? {} : { "Content-Type": "application/json" };
  return json(urlOf(path), {
    method,
    body: body === undefined ? undefined : JSON.stringify(body),
    headers: { ...content, "Idempotency-Key": key },
  });
}

export const clusters = () => json("/clusters");

export const parseSpecs = (text) =>
  json("/api/v1/specs/parse", { method: "POST", body: text, headers: { "Content-Type": "application/yaml" } });

/** The newest events that match, oldest first, and the sequence number of the newest event of all. */
export async function events(query) {
  const response = await get(`/events?${new URLSearchParams(query)}`);
  return { events: response.events ?? [], last: response.last_sequence ?? "0" };
}

/** A long list, page by page. `onPage` gets the items so far after each page. */
export async function pages(path, field, onPage) {
  const all = [];
  let cursor = "";
  do {
    const separator = path.includes("?") ? "&" : "?";
    const url = urlOf(`${path}${separator}limit=${PAGE}${cursor && `&cursor=${segment(cursor)}`}`);
    const [body, next] = await request(url);
    all.push(...(body[field] ?? []));
    cursor = next ?? "";
    onPage?.(all);
  } while (cursor);
  return all;
}

/** The chunks of a response as text, until it ends or `signal` aborts. */
export async function* stream(path, { signal, headers: more = {} }) {
  let reader;
  try {
    const response = await send(urlOf(path), { signal, headers: { Accept: "*/*", ...more } });
    reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } catch (error) {
    if (signal.aborted) return;
    throw error instanceof Problem ? error : new Problem(0, "The connection was lost.");
  } finally {
    reader?.cancel().catch(() => {});
  }
}

/** A signal that also aborts when the page is hidden: browsers limit the connections of all tabs together. */
export function whileVisible(signal) {
  const hidden = new AbortController();
  document.addEventListener("visibilitychange", () => { if (document.hidden) hidden.abort(); }, { signal: hidden.signal });
  return AbortSignal.any([signal, hidden.signal]);
}

/** Resolves when the page is visible or `signal` aborts. */
export function untilVisible(signal) {
  if (!document.hidden || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
    signal.addEventListener("abort", resolve, { once: true });
  });
}
