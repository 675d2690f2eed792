// The current page from the fragment of the URL: #/section/id?filter=value

import { useEffect, useState } from "preact/hooks";

export interface Route {
  section: string;
  id: string;
  isKnown: boolean; // the path has a valid form
  query: Record<string, string>;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  try {
    const [section = "", id = "", ...rest] = path.split("/").map(decodeURIComponent);
    return { section, id, isKnown: rest.length === 0, query: Object.fromEntries(new URLSearchParams(query)) };
  } catch {
    return { section: path, id: "", isKnown: false, query: {} }; // not a valid URL
  }
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const update = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return route;
}

/** Filters are part of the URL, so that links and reloads keep them. */
export function setQuery({ section, id }: Route, query: Record<string, string>): void {
  const params = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  const path = [section, id].filter(Boolean).map(encodeURIComponent).join("/");
  history.replaceState(null, "", `#/${path}${params.size ? `?${params}` : ""}`);
}
