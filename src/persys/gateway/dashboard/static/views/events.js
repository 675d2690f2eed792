// The latest events, newest first.

import { h } from "../dom.js";
import { counted } from "../format.js";
import { timeline } from "../components.js";
import { emptyText } from "../state.js";

export const title = () => "Events";
export const needs = () => ({});

export function open(route, { redraw, setQuery }) {
  const filters = { q: "", ...route.query };
  const choose = (value) => { filters.q = value; setQuery(filters); redraw(); };
  return {
    draw(state) {
      const words = filters.q.toLowerCase().split(/\s+/).filter(Boolean);
      const found = state.events.filter((event) => {
        const text = `${event.kind} ${event.workload_id} ${event.node_id} ${event.message}`.toLowerCase();
        return words.every((word) => text.includes(word));
      });
      return [
        h("h1", { tabindex: "-1" }, "Events"),
        h("form", { class: "row filters", role: "search", onsubmit: (event) => event.preventDefault() },
          h("label", {}, h("span", {}, "Search"), h("input", {
            type: "search", "data-filter": true, value: filters.q, autocomplete: "off", placeholder: "workload, node, kind …  ( / )",
            oninput: (event) => choose(event.target.value),
          }))),
        state.eventsRead && h("p", { class: "quiet" }, `${found.length} of the latest ${counted(state.events.length, "event")}`),
        h("section", { class: "card", "aria-label": "Events" }, timeline(found, { empty: emptyText(state.eventsRead, filters.q ? "No matching events." : "No events yet.") })),
      ];
    },
  };
}
