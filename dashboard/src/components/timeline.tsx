// Events, newest first.

import type { EventView } from "../api/schema";
import { words } from "../format";
import { NodeLink, WorkloadLink } from "./links";
import { When } from "./when";

interface Props {
  events: EventView[];
  empty?: string;
  limit?: number;
  about?: string; // the workload or node of the page, which needs no link
}

export function Timeline({ events, empty = "No events yet.", limit = 200, about = "" }: Props) {
  if (!events.length) return <p class="quiet">{empty}</p>;
  return (
    <ol class="timeline">
      {events.slice(-limit).reverse().map((event) => (
        <li key={event.sequence} class={toneOf(event.kind ?? "")}>
          <When at={event.at} /> <strong>{words(event.kind)}</strong>{" "}
          {event.workload_id && event.workload_id !== about && <><WorkloadLink id={event.workload_id} /> </>}
          {event.node_id && event.node_id !== about && <>on <NodeLink id={event.node_id} /> </>}
          {event.message && <span class="message">{event.message}</span>}
        </li>
      ))}
    </ol>
  );
}

function toneOf(kind: string): string {
  if (/Failed|NotReady|Unhealthy|TimedOut|Unplaceable|Unknown|Denied/.test(kind)) return "bad";
  return /Running|Ready|Healthy|Resolved/.test(kind) ? "good" : "";
}
