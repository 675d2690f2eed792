// Calls to the gateway. What is refused is a Problem; status 0 means that nobody answered.

import { setServerTime } from "./format.js";

const TOKEN = "persys.token", CLUSTER = "persys.cluster";
const DEADLINE_MS = 20000, PAGE = 1000;
const AGAIN_MS = [100, 400];
const NEXT = "X-Next-Cursor";

export class Problem extends Error {
  constructor(status, detail, more = {}) {
    super(detail);
    this.status = status;
    this.more = more;
  }

  get isGone() { return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504; }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (value) => (value ? sessionStorage.setItem(TOKEN, value) : sessionStorage.removeItem(TOKEN)),
};

export const cluster = {
  get: () => sessionStorage.getItem(CLUSTER) ?? "",
  set: (id) => (id ? sessionStorage.setItem(CLUSTER, id) : sessionStorage.removeItem(CLUSTER)),
};

/** A path of /api/v1 in the chosen cluster. */
function addressed(path) {
  const chosen = cluster.get();
  return chosen ? `/api/v1/clusters/${encodeURIComponent(chosen)}${path}` : `/api/v1${path}`;
}

export const part = encodeURIComponent;

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
    throw new Problem(0, "The gateway does not answer.");
  }
  const date = response.headers.get("Date");
  if (date) setServerTime(date);
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  let told = {};
  try { told = await response.json(); } catch { /* not ours: the status says enough */ }
  const detail = told.detail || told.title || `The gateway answered ${response.status}.`;
  return new Problem(response.status, detail, told);
}

/** The answer, and the cursor of the next page if there is one. */
async function answered(url, options = {}) {
  const response = await again(() => send(url, { ...options, signal: AbortSignal.timeout(DEADLINE_MS) }));
  try {
    return [await response.json(), response.headers.get(NEXT)];
  } catch {
    throw new Problem(0, "The answer of the gateway was cut off.");
  }
}

/** A browser drops what is under way when its machine changes networks. Reads, and changes with a key, may be
 * sent once more; what took too long is not. */
async function again(work) {
  for (const pause of AGAIN_MS) {
    const began = Date.now();
    try {
      return await work();
    } catch (problem) {
      if (problem.status !== 0 || Date.now() - began >= DEADLINE_MS) throw problem;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
  return work();
}

const json = async (url, options) => (await answered(url, options))[0];

export const get = (path) => json(addressed(path));

/** A question that is too long for an address. */
export const query = (path, body) =>
  json(addressed(path), { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

/** A change. The key makes sure that it happens once, even if it is sent twice. */
export function ask(method, path, body) {
  const key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const content = body === undefined ? {} : { "Content-Type": "application/json" };
  return json(addressed(path), {
    method,
    body: body === undefined ? undefined : JSON.stringify(body),
    headers: { ...content, "Idempotency-Key": key },
  });
}

export const clusters = () => json("/clusters");

export const parseSpecs = (text) =>
  json("/api/v1/specs/parse", { method: "POST", body: text, headers: { "Content-Type": "application/yaml" } });

/** The newest events that fit, the oldest of them first, and the number of the newest of all. */
export async function events(query) {
  const answer = await get(`/events?${new URLSearchParams(query)}`);
  return { events: answer.events ?? [], last: answer.last_sequence ?? "0" };
}

/** A long list, page by page; each is handed over as it comes, so that the first is seen early. */
export async function pages(path, field, take) {
  const all = [];
  let cursor = "";
  do {
    const joint = path.includes("?") ? "&" : "?";
    const url = addressed(`${path}${joint}limit=${PAGE}${cursor && `&cursor=${part(cursor)}`}`);
    const [answer, next] = await answered(url);
    all.push(...(answer[field] ?? []));
    cursor = next ?? "";
    take?.(all);
  } while (cursor);
  return all;
}

/** The bytes of an answer as text, piece by piece, until it ends or `signal` says so. */
export async function* streamed(path, { signal, headers: more = {} }) {
  let reader;
  try {
    const response = await send(addressed(path), { signal, headers: { Accept: "*/*", ...more } });
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

/** A signal that also ends when the page is out of sight: browsers open few connections, and tabs are many. */
export function whileSeen(signal) {
  const hidden = new AbortController();
  document.addEventListener("visibilitychange", () => { if (document.hidden) hidden.abort(); }, { signal: hidden.signal });
  return AbortSignal.any([signal, hidden.signal]);
}

/** Resolves when the page is in sight, or `signal` has ended. */
export function seen(signal) {
  if (!document.hidden || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
    signal.addEventListener("abort", resolve, { once: true });
  });
}
