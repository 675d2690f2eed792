// The application frame: routing, navigation, banner, connection status and keyboard shortcuts.

import * as api from "./api.js";
import { announce, h, morph } from "./dom.js";
import { duration } from "./format.js";
import { restart, setNeeds } from "./sync.js";
import { status, tick } from "./components.js";
import { onChange, state } from "./state.js";
import * as access from "./views/access.js";
import * as apply from "./views/apply.js";
import * as events from "./views/events.js";
import * as notFound from "./views/not_found.js";
import * as node from "./views/node.js";
import * as nodes from "./views/nodes.js";
import * as overview from "./views/overview.js";
import * as workload from "./views/workload.js";
import * as workloads from "./views/workloads.js";

const PAGES = { "": overview, nodes, workloads, apply, events, access };
const DETAILS = { nodes: node, workloads: workload };
const NAV = [["", "Overview"], ["workloads", "Workloads"], ["nodes", "Nodes"], ["events", "Events"], ["apply", "Apply"], ["access", "Access"]];
const THEMES = { "": "System", light: "Light", dark: "Dark" };
const STALE_SECONDS = 15;

const byId = (id) => document.getElementById(id);
let current = null; // the current page
let section = "";

function parseRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  try {
    const [first = "", second = "", ...rest] = path.split("/").map(decodeURIComponent);
    return { section: first, id: second, isKnown: rest.length === 0, query: Object.fromEntries(new URLSearchParams(query)) };
  } catch {
    return { section: path, id: "", isKnown: false, query: {} }; // not a valid URL
  }
}

function pageOf({ section: name, id, isKnown }) {
  const pages = id ? DETAILS : PAGES;
  return isKnown && Object.hasOwn(pages, name) ? pages[name] : notFound;
}

function navigate() {
  const route = parseRoute();
  const page = pageOf(route);
  current?.close?.();
  const isFirst = current === null;
  section = route.section;
  byId("main").replaceChildren();
  current = page.open(route, { redraw: draw, setQuery: (query) => setQuery(route, query) });
  document.title = `${page.title(route)} · Persys`;
  setNeeds(page.needs(route));
  draw();
  if (!isFirst) byId("main").querySelector("h1")?.focus();
  scrollTo(0, 0);
}

/** Filters are part of the URL, so that links and reloads keep them. */
function setQuery(route, query) {
  const params = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  history.replaceState(null, "", `#/${route.section}${params.size ? `?${params}` : ""}`);
}

function draw() {
  morph(byId("main"), ...[current.draw(state)].flat(Infinity));
  morph(byId("nav"), ...NAV.map(([name, text]) =>
    h("a", { href: `#/${name}`, "aria-current": name === section ? "page" : undefined }, text)));
  morph(byId("tools"), ...[clusterPicker(), themePicker()].filter(Boolean));
  banner();
  freshness();
}

function clusterPicker() {
  const all = state.clusters?.clusters ?? [];
  if (all.length < 2) return null;
  const chosen = api.cluster.get() || state.clusters.default_cluster_id;
  return h("label", { "data-key": "cluster" }, h("span", { class: "visually-hidden" }, "Cluster"), h("select", { id: "cluster", onchange: (event) => choose(event.target.value) },
    all.map(({ id, name, healthy_schedulers: healthy }) =>
      h("option", { value: id, selected: id === chosen }, `${name || id}${healthy ? "" : " (unreachable)"}`))));
}

function choose(id) {
  api.cluster.set(id === state.clusters.default_cluster_id ? "" : id);
  restart();
  navigate();
  announce(`Cluster ${id}`);
}

function themePicker() {
  const theme = globalThis.persysTheme;
  return h("label", { "data-key": "theme" }, h("span", { class: "visually-hidden" }, "Colours"), h("select", { id: "theme", onchange: (event) => theme.set(event.target.value) },
    Object.entries(THEMES).map(([value, text]) => h("option", { value, selected: value === theme.get() }, text))));
}

const ERRORS = {
  gateway: () => "The gateway does not respond. The data is out of date; retrying …",
  scheduler: ({ detail }) => `The scheduler cannot be reached through the gateway (${detail}). Workloads continue to run. The data is out of date; retrying …`,
  error: ({ detail }) => `The gateway returned an error: ${detail}`,
};

function banner() {
  const box = byId("banner"), { link, mode } = state;
  const text = ERRORS[link.state]?.(link);
  const signIn = link.state === "denied" && ["Access denied: ", link.detail, " ", h("a", { href: "#/access" }, "Sign in")];
  const abnormal = mode && mode.mode && mode.mode !== "normal" && ["The control plane is in mode ", status(mode.mode), " ", mode.reason ?? ""];
  const content = text ? [text] : signIn || abnormal || [];
  box.hidden = content.length === 0;
  box.className = text || signIn ? "banner bad" : "banner";
  morph(box, ...content);
}

let wasLive = false;
function freshness() {
  const { asOf, link, mode } = state;
  const isLive = link.state === "live";
  if (isLive !== wasLive) announce(isLive ? "Connected: the data is live." : "The connection was lost.");
  wasLive = isLive;
  const seconds = asOf ? (Date.now() - asOf) / 1000 + Number(mode?.data_age_ms ?? 0) / 1000 : null;
  const old = seconds === null ? "no data yet" : `data ${duration(seconds)} old`;
  byId("freshness").className = isLive && seconds < STALE_SECONDS ? "fresh" : "stale";
  byId("freshness").textContent = `${isLive ? "Live" : "Not live"}, ${old}`;
}

function onKey(event) {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    const filter = document.querySelector("[data-filter]");
    if (!filter) return;
    event.preventDefault();
    filter.focus();
    filter.select();
  } else if (event.key === "Escape" && event.target.matches("[data-filter]")) {
    event.target.blur();
  }
}

addEventListener("hashchange", navigate);
document.addEventListener("keydown", onKey);
byId("skip").onclick = () => byId("main").focus();
onChange(draw);
setInterval(() => { tick(); freshness(); }, 1000);
restart();
navigate();
