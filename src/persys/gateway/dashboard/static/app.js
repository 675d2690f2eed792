// The frame: which page is shown, what is said above it, and the keys.

import * as api from "./api.js";
import { announce, h, morph } from "./dom.js";
import { span } from "./format.js";
import { restart, want } from "./live.js";
import { status, tick } from "./parts.js";
import { onChange, state } from "./state.js";
import * as access from "./views/access.js";
import * as apply from "./views/apply.js";
import * as events from "./views/events.js";
import * as missing from "./views/missing.js";
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

const place = (id) => document.getElementById(id);
let shown = null; // the open page
let section = "";

function routed() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  try {
    const [first = "", second = "", ...rest] = path.split("/").map(decodeURIComponent);
    return { section: first, id: second, isKnown: rest.length === 0, query: Object.fromEntries(new URLSearchParams(query)) };
  } catch {
    return { section: path, id: "", isKnown: false, query: {} }; // not a valid address
  }
}

function pageOf({ section: name, id, isKnown }) {
  const pages = id ? DETAILS : PAGES;
  return isKnown && Object.hasOwn(pages, name) ? pages[name] : missing;
}

function go() {
  const route = routed();
  const page = pageOf(route);
  shown?.close?.();
  const isFirst = shown === null;
  section = route.section;
  place("main").replaceChildren();
  shown = page.open(route, { redraw: draw, setQuery: (query) => setQuery(route, query) });
  document.title = `${page.title(route)} · Persys`;
  want(page.needs(route));
  draw();
  if (!isFirst) place("main").querySelector("h1")?.focus();
  scrollTo(0, 0);
}

/** The filters are part of the address, so that a link or a reload shows the same. */
function setQuery(route, query) {
  const said = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  history.replaceState(null, "", `#/${route.section}${said.size ? `?${said}` : ""}`);
}

function draw() {
  morph(place("main"), ...[shown.draw(state)].flat(Infinity));
  morph(place("nav"), ...NAV.map(([name, text]) =>
    h("a", { href: `#/${name}`, "aria-current": name === section ? "page" : undefined }, text)));
  morph(place("tools"), ...[clusterPicker(), themePicker()].filter(Boolean));
  banner();
  freshness();
}

function clusterPicker() {
  const all = state.clusters?.clusters ?? [];
  if (all.length < 2) return null;
  const chosen = api.cluster.get() || state.clusters.default_cluster_id;
  return h("label", { "data-key": "cluster" }, h("span", { class: "unseen" }, "Cluster"), h("select", { id: "cluster", onchange: (event) => choose(event.target.value) },
    all.map(({ id, name, healthy_schedulers: healthy }) =>
      h("option", { value: id, selected: id === chosen }, `${name || id}${healthy ? "" : " (unreachable)"}`))));
}

function choose(id) {
  api.cluster.set(id === state.clusters.default_cluster_id ? "" : id);
  restart();
  go();
  announce(`Cluster ${id}`);
}

function themePicker() {
  const theme = globalThis.persysTheme;
  return h("label", { "data-key": "theme" }, h("span", { class: "unseen" }, "Colours"), h("select", { id: "theme", onchange: (event) => theme.set(event.target.value) },
    Object.entries(THEMES).map(([value, text]) => h("option", { value, selected: value === theme.get() }, text))));
}

const TROUBLE = {
  gateway: () => "The gateway does not answer. The data is out of date; retrying …",
  scheduler: ({ detail }) => `The scheduler cannot be reached through the gateway (${detail}). Workloads keep running. The data is out of date; retrying …`,
  trouble: ({ detail }) => `The gateway answered with an error: ${detail}`,
};

function banner() {
  const box = place("banner"), { link, mode } = state;
  const text = TROUBLE[link.state]?.(link);
  const signIn = link.state === "denied" && ["Access denied: ", link.detail, " ", h("a", { href: "#/access" }, "Sign in")];
  const unwell = mode && mode.mode && mode.mode !== "normal" && ["The control plane is in mode ", status(mode.mode), " ", mode.reason ?? ""];
  const content = text ? [text] : signIn || unwell || [];
  box.hidden = content.length === 0;
  box.className = text || signIn ? "banner bad" : "banner";
  morph(box, ...content);
}

let wasLive = false;
function freshness() {
  const { asOf, link, mode } = state;
  const isLive = link.state === "live";
  if (isLive !== wasLive) announce(isLive ? "Connected: the data is live." : "The connection is lost.");
  wasLive = isLive;
  const seconds = asOf ? (Date.now() - asOf) / 1000 + Number(mode?.data_age_ms ?? 0) / 1000 : null;
  const old = seconds === null ? "no data yet" : `data ${span(seconds)} old`;
  place("freshness").className = isLive && seconds < STALE_SECONDS ? "fresh" : "stale";
  place("freshness").textContent = `${isLive ? "Live" : "Not live"}, ${old}`;
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

addEventListener("hashchange", go);
document.addEventListener("keydown", onKey);
place("skip").onclick = () => place("main").focus();
onChange(draw);
setInterval(() => { tick(); freshness(); }, 1000);
restart();
go();
