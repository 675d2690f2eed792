// The logs of a few workloads together: #/logs?ids=a,b

import { useState } from "preact/hooks";
import type { Page } from "../../app/page";
import { setQuery, type Route } from "../../app/router";
import { Quiet } from "../../components/card";
import { Logs } from "../../components/logs";
import { emptyText, isAllowed, useAppState } from "../../state/store";

// Browsers open six connections to a host: each log needs one, and the events need one.
export const SOURCES_MAX = 4;

function View({ route }: { route: Route }) {
  const state = useAppState();
  const [ids, setIds] = useState(() => idsOf(route.query["ids"] ?? ""));
  const [text, setText] = useState("");
  const choose = (chosen: string[]) => { setIds(chosen); setQuery(route, { ids: chosen.join(",") }); };
  const add = (event: Event) => {
    event.preventDefault();
    choose(idsOf([...ids, text.trim()].join(",")));
    setText("");
  };
  const isFull = ids.length >= SOURCES_MAX;
  return (
    <>
      <h1 tabIndex={-1}>Logs</h1>
      <form class="row filters" onSubmit={add}>
        <label><span>Workload</span>
          <input name="workload" list="log-workloads" data-filter required value={text} autocomplete="off" disabled={isFull} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <datalist id="log-workloads">{matching([...state.workloads.keys()], text).map((id) => <option value={id} key={id} />)}</datalist>
        <button type="submit" disabled={isFull}>Add</button>
        {ids.map((id) => <button type="button" key={id} aria-label={`Remove ${id}`} onClick={() => choose(ids.filter((one) => one !== id))}>{id} ×</button>)}
        {isFull && <span class="quiet">At most {SOURCES_MAX} logs at a time.</span>}
      </form>
      {!state.identity ? <Quiet>{emptyText(false)}</Quiet>
        : !isAllowed("logs") ? <Quiet>Your role may not read logs.</Quiet>
          : ids.length ? <Logs sources={ids.map((id) => ({ id, isVm: state.workloads.get(id)?.type === "vm" }))} />
            : <Quiet>Add a workload to see its log.</Quiet>}
    </>
  );
}

export const idsOf = (text: string): string[] => [...new Set(text.split(",").filter(Boolean))].slice(0, SOURCES_MAX);

const matching = (ids: string[], text: string): string[] => ids.filter((id) => id.includes(text)).slice(0, 50);

export const logs: Page = { title: () => "Logs", needs: () => ({ workloads: true }), View };
