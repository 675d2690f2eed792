// What surrounds every page: navigation, banner, and whether the data is live.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { cluster } from "../api/session";
import { Dialogs } from "../components/dialog";
import { Status } from "../components/status";
import { tick } from "../components/when";
import { duration } from "../format";
import { state, useAppState, type State } from "../state/store";
import { restart, setNeeds } from "../state/sync";
import { announce } from "./announce";
import { NAVIGATION, pageOf } from "./pages";
import { useRoute, type Route } from "./router";
import { useShortcuts } from "./shortcuts";

const STALE_SECONDS = 15;
const THEMES: [value: string, text: string][] = [["", "System"], ["light", "Light"], ["dark", "Dark"]];

declare global {
  // Set by theme.js, which runs before the first paint.
  var persysTheme: { get: () => string; set: (theme: string) => void };
}

export function Frame() {
  const route = useRoute();
  const main = useRef<HTMLElement>(null);
  useShortcuts();
  return (
    <>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>Skip to the content</button>
      <header class="top">
        <a class="brand" href="#/"><img src="icon.svg" alt="" width="22" height="22" /> Persys</a>
        <nav aria-label="Pages">
          {NAVIGATION.map(([section, text]) => (
            <a key={section} href={`#/${section}`} aria-current={section === route.section ? "page" : undefined}>{text}</a>
          ))}
        </nav>
        <div class="tools"><User /><ClusterPicker /><ThemePicker /></div>
      </header>
      <Banner />
      <main id="main" tabIndex={-1} ref={main}><CurrentPage route={route} /></main>
      <footer class="foot"><Freshness /></footer>
      <Dialogs />
    </>
  );
}

function CurrentPage({ route }: { route: Route }) {
  const page = pageOf(route);
  const { session } = useAppState();
  const isFirst = useRef(true);
  const address = `${route.section}/${route.id}`;
  useLayoutEffect(() => {
    document.title = `${page.title(route)} · Persys`;
    setNeeds(page.needs(route));
    if (!isFirst.current) document.querySelector<HTMLElement>("main h1")?.focus();
    isFirst.current = false;
    scrollTo(0, 0);
  }, [address]);
  return <page.View key={`${session} ${address} ${JSON.stringify(route.query)}`} route={route} />;
}

/** The name and role of the user; without authentication there is none. */
function User() {
  const { identity, link } = useAppState();
  if (link.state === "denied") return <a href="#/access">Sign in</a>;
  if (!identity?.role) return null;
  const text = `${identity.name} (${identity.role})`;
  return <a class="user" href="#/access" title={text}>{text}</a>;
}

function ClusterPicker() {
  const { clusters } = useAppState();
  const all = clusters?.clusters ?? [];
  if (all.length < 2) return all[0] ? <span class="user quiet" title="Cluster">{all[0].name || all[0].id}</span> : null;
  const choose = (id: string) => {
    cluster.set(id === clusters?.default_cluster_id ? "" : id);
    restart();
    announce(`Cluster ${id}`);
  };
  return (
    <label><span class="visually-hidden">Cluster</span>
      <select id="cluster" value={cluster.get() || clusters?.default_cluster_id} onChange={(event) => choose(event.currentTarget.value)}>
        {all.map(({ id, name, healthy_schedulers: healthy }) => (
          <option value={id} key={id}>{`${name || id}${healthy ? "" : " (unreachable)"}`}</option>
        ))}
      </select>
    </label>
  );
}

function ThemePicker() {
  const [theme, setTheme] = useState(globalThis.persysTheme.get());
  const choose = (value: string) => { globalThis.persysTheme.set(value); setTheme(value); };
  return (
    <label><span class="visually-hidden">Colours</span>
      <select id="theme" value={theme} onChange={(event) => choose(event.currentTarget.value)}>
        {THEMES.map(([value, text]) => <option value={value} key={value}>{text}</option>)}
      </select>
    </label>
  );
}

function Banner() {
  const { link, mode } = useAppState();
  const error = errorText(link);
  if (error) return <div id="banner" class="banner bad" role="alert">{error}</div>;
  if (link.state === "denied") {
    return <div id="banner" class="banner bad" role="alert">Access denied: {link.detail} <a href="#/access">Sign in</a></div>;
  }
  if (mode?.mode && mode.mode !== "normal") {
    return <div id="banner" class="banner" role="alert">The control plane is in mode <Status word={mode.mode} /> {mode.reason ?? ""}</div>;
  }
  return <div id="banner" class="banner" role="alert" hidden />;
}

function errorText({ state: kind, detail }: State["link"]): string {
  switch (kind) {
    case "gateway": return "The gateway does not respond. The data is out of date; retrying …";
    case "scheduler":
      return `The scheduler cannot be reached through the gateway (${detail}). Workloads continue to run. The data is out of date; retrying …`;
    case "error": return `The gateway returned an error: ${detail}`;
    case "live": case "connecting": case "denied": return "";
  }
}

function Freshness() {
  const { link } = useAppState();
  const [, render] = useState(0);
  const isLive = link.state === "live";
  const wasLive = useRef(false);
  useEffect(() => {
    const timer = setInterval(() => { tick(); render((count) => count + 1); }, 1000);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => {
    if (isLive !== wasLive.current) announce(isLive ? "Connected: the data is live." : "The connection was lost.");
    wasLive.current = isLive;
  }, [isLive]);
  const seconds = state.asOf ? (Date.now() - state.asOf + Number(state.mode?.data_age_ms ?? 0)) / 1000 : null;
  const age = seconds === null ? "no data yet" : `data ${duration(seconds)} old`;
  const isFresh = isLive && seconds !== null && seconds < STALE_SECONDS;
  return <span id="freshness" class={isFresh ? "fresh" : "stale"}>{isLive ? "Live" : "Not live"}, {age}</span>;
}
