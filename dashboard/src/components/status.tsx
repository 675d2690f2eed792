// A status is shown as a word and a symbol, not only by colour.

import type { WorkloadView } from "../api/schema";

type Tone = "good" | "wait" | "bad" | "idle";

const MARKS: Record<string, [Tone, string]> = {
  Running: ["good", "●"], Ready: ["good", "●"], normal: ["good", "●"], drained: ["good", "●"], healthy: ["good", "●"],
  Pending: ["wait", "◔"], Scheduled: ["wait", "◔"], Updating: ["wait", "◔"], Deleting: ["wait", "◔"], Draining: ["wait", "◔"],
  Steady: ["good", "●"], Succeeded: ["good", "●"], running: ["good", "●"], completed: ["good", "●"],
  Canary: ["wait", "◔"], Rolling: ["wait", "◔"], RollingBack: ["bad", "▲"], Paused: ["idle", "■"], Cancelled: ["idle", "■"],
  draining: ["wait", "◔"], starting: ["wait", "◔"], degraded: ["wait", "▲"], Stopped: ["idle", "■"], Unknown: ["wait", "?"],
  Failed: ["bad", "✕"], Unhealthy: ["bad", "▲"], unhealthy: ["bad", "▲"], NotReady: ["bad", "✕"], recovery: ["bad", "✕"], overdue: ["bad", "✕"],
};

export function Status({ word, shown = word }: { word: string | undefined; shown?: string | undefined }) {
  const [tone, mark] = MARKS[word ?? ""] ?? ["idle", "○"];
  return <span class={`status ${tone}`}><span aria-hidden="true">{mark}</span> {shown || "–"}</span>;
}

/** The health by its check: healthy, unhealthy or starting. Empty: no check, or not running. */
export function healthOf(view: WorkloadView): string {
  if (view.status !== "Running") return "";
  return isUnhealthy(view) ? "unhealthy" : view.metadata?.["container.health"] ?? "";
}

export const isUnhealthy = (view: WorkloadView): boolean =>
  view.reason?.code === "Unhealthy" || view.metadata?.["container.health"] === "unhealthy";

/** A running workload that fails its health check is shown as unhealthy. */
export function WorkloadStatus({ view }: { view: WorkloadView }) {
  return view.status === "Running" && isUnhealthy(view)
    ? <Status word="Unhealthy" shown="Running (unhealthy)" />
    : <Status word={view.status} />;
}
