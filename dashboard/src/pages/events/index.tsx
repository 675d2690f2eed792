// The latest events, newest first.

import { useState } from "preact/hooks";
import type { Page } from "../../app/page";
import { setQuery, type Route } from "../../app/router";
import { Search, wordsOf } from "../../components/search";
import { Timeline } from "../../components/timeline";
import { counted } from "../../format";
import { emptyText, useAppState } from "../../state/store";

function View({ route }: { route: Route }) {
  const state = useAppState();
  const [text, setText] = useState(route.query["q"] ?? "");
  const choose = (value: string) => { setText(value); setQuery(route, { q: value }); };
  const wanted = wordsOf(text);
  const found = state.events.filter((event) => {
    const searched = `${event.kind} ${event.workload_id} ${event.node_id} ${event.message}`.toLowerCase();
    return wanted.every((word) => searched.includes(word));
  });
  return (
    <>
      <h1 tabIndex={-1}>Events</h1>
      <form class="row filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <Search value={text} placeholder="workload, node, kind" onInput={choose} />
      </form>
      {state.eventsRead && <p class="quiet">{found.length} of the latest {counted(state.events.length, "event")}</p>}
      <section class="card" aria-label="Events">
        <Timeline events={found} empty={emptyText(state.eventsRead, text ? "No matching events." : "No events yet.")} />
      </section>
    </>
  );
}

export const events: Page = { title: () => "Events", needs: () => ({}), View };
