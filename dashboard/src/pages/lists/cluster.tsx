// Services, node pools, federated clusters and suggestions.

import { call, pages, segment } from "../../api/client";
import type { NodePoolView, NodeView, ServiceView, SuggestionView } from "../../api/schema";
import { NodeLink, WorkloadLink } from "../../components/links";
import { listPage } from "../../components/list_page";
import { Status } from "../../components/status";
import { When } from "../../components/when";
import { cores, counted, megabytes, words } from "../../format";
import { shownStatus } from "../nodes";

export const portsOf = ({ spec }: ServiceView): string => (spec?.ports ?? []).map((port) => `${port.port}/${port.protocol || "tcp"}`).join(", ");

export const services = listPage<ServiceView>({
  title: "Services",
  intro: <>A service is a name with healthy members behind it. Apply a spec with <code>kind: service</code> with persysctl to create one.</>,
  permission: "read",
  read: async () => ({ items: await pages<ServiceView>("ListServices", "services") }),
  nameOf: ({ spec }) => spec?.service_id ?? "",
  textOf: (view) => [view.spec?.service_id, view.dns_name, ...(view.spec?.hosts ?? []), portsOf(view)].join(" "),
  columns: [
    { head: "Service", cell: ({ spec }) => <a href={`#/services/${segment(spec?.service_id ?? "")}`}>{spec?.service_id}</a> },
    { head: "Healthy", cell: ({ healthy_count: healthy = 0, member_count: all = 0 }) => <Status word={healthy ? "Running" : "Failed"} shown={`${healthy} of ${all}`} /> },
    { head: "Ports", cell: portsOf },
    { head: "DNS name", cell: ({ dns_name: name }) => name || "–" },
    { head: "Hosts", cell: ({ spec }) => (spec?.hosts ?? []).join(", ") || "–" },
    { head: "Updated", cell: ({ updated_at: at }) => <When at={at} /> },
  ],
  empty: "No services.",
});

export const poolStatus = (view: NodePoolView): string => {
  if (view.deleting) return "Deleting";
  return view.paused ? "Paused" : view.problem ? "Failed" : "Ready";
};

export const nodepools = listPage<NodePoolView>({
  title: "Node pools",
  intro: <>Machines that a provider creates while workloads wait for capacity. Create a pool with <code>persysctl nodepool create</code>.</>,
  permission: "read",
  read: async () => ({ items: await pages<NodePoolView>("ListNodePools", "pools") }),
  nameOf: ({ spec }) => spec?.pool_id ?? "",
  textOf: (view) => [view.spec?.pool_id, view.spec?.provider, view.spec?.region, view.problem].join(" "),
  columns: [
    { head: "Pool", cell: ({ spec }) => <a href={`#/nodepools/${segment(spec?.pool_id ?? "")}`}>{spec?.pool_id}</a> },
    { head: "Status", cell: (view) => <Status word={poolStatus(view)} /> },
    { head: "Provider", cell: ({ spec }) => [spec?.provider, spec?.region].filter(Boolean).join(", ") },
    { head: "Machines", cell: ({ machines = [], spec }) => `${machines.length} (${spec?.min ?? 0} to ${spec?.max ?? 0})` },
    { head: "Spend per hour", cell: ({ spend_per_hour: spend, spec }) => `${spend ?? 0} of ${spec?.spend_per_hour_max ?? 0}` },
    { head: "Problem", cell: ({ problem }) => problem || "–" },
  ],
  empty: "No node pools.",
});

export const federation = listPage<NodeView>({
  title: "Federation",
  intro: <>Clusters that take workloads of this cluster. Each is shown as one node.</>,
  permission: "read",
  read: async () => ({ items: (await pages<NodeView>("ListNodes", "nodes")).filter((node) => node.remote) }),
  nameOf: ({ node_id: id }) => id ?? "",
  textOf: (node) => [node.node_id, node.remote, node.status].join(" "),
  columns: [
    { head: "Node", cell: ({ node_id: id }) => <NodeLink id={id} /> },
    { head: "Cluster", cell: ({ remote }) => remote },
    { head: "Status", cell: (node) => <Status word={node.status} shown={shownStatus(node)} /> },
    { head: "Tier", cell: ({ tier }) => String(tier ?? 0) },
    { head: "Price of a core hour", cell: ({ core_hour_price: price }) => String(price ?? 0) },
    { head: "Free", cell: (node) => `${cores(node.available_cpu_cores)}, ${megabytes(node.available_memory_mb)}` },
    { head: "Workloads", cell: ({ workload_count: count }) => String(count ?? 0) },
    { head: "Heartbeat", cell: ({ last_heartbeat: at }) => <When at={at} /> },
  ],
  empty: "No federated clusters.",
});

/** What a suggestion would do, without the prefix of the enum. */
const suggested = ({ suggestion }: SuggestionView): string => {
  const action = words((suggestion?.action_type ?? "").replace(/^AUTOMATION_ACTION_(TYPE_)?/, "").replaceAll("_", " "));
  const replicas = suggestion?.desired_replicas ?? 0, delta = suggestion?.replica_delta ?? 0;
  const amount = replicas ? counted(replicas, "replica") : delta ? `by ${delta}` : "";
  return [action, suggestion?.desired_state, amount].filter(Boolean).join(" ");
};

const isPending = ({ decision }: SuggestionView): boolean => decision === PENDING;
const PENDING = "pending";
const SUGGESTIONS_SHOWN = 500;

// The permission to approve is that of the suggested action, which changes workloads.
export const suggestions = listPage<SuggestionView>({
  title: "Suggestions",
  intro: <>Changes that programs suggest. A pending one waits for a decision.</>,
  permission: "read",
  read: async () => ({ items: (await call("ListSuggestions", { limit: SUGGESTIONS_SHOWN })).suggestions ?? [] }),
  nameOf: ({ suggestion }) => suggestion?.suggestion_id ?? "",
  textOf: (view) => [view.suggestion?.suggestion_id, view.suggestion?.target_workload, view.suggestion?.reason, view.decision, view.submitted_by].join(" "),
  columns: [
    { head: "Suggestion", cell: ({ suggestion }) => suggestion?.suggestion_id },
    { head: "Workload", cell: ({ suggestion }) => <WorkloadLink id={suggestion?.target_workload} /> },
    { head: "Change", cell: suggested },
    { head: "Reason", cell: ({ suggestion }) => suggestion?.reason ?? "" },
    { head: "Decision", cell: ({ decision, reason }) => [decision, reason].filter(Boolean).join(": ") },
    { head: "By", cell: ({ decided_by: decided, submitted_by: submitted }) => decided || submitted || "–" },
    { head: "Decided", cell: ({ decided_at: at }) => <When at={at} /> },
    { head: "Expires", cell: (view) => (isPending(view) ? <When at={view.expires_at} /> : "–") },
  ],
  actions: [
    {
      verb: "Approve", permission: "workloads", isOffered: isPending,
      question: (view) => ({ title: `Approve ${view.suggestion?.suggestion_id}?`, verb: "Approve", text: `${view.suggestion?.target_workload}: ${suggested(view)}` }),
      work: ({ suggestion }) => call("ApproveSuggestion", { suggestion_id: suggestion?.suggestion_id ?? "" }),
      done: ({ suggestion }) => `${suggestion?.suggestion_id} is approved.`,
    },
    {
      verb: "Reject", permission: "workloads", isOffered: isPending,
      work: ({ suggestion }) => call("RejectSuggestion", { suggestion_id: suggestion?.suggestion_id ?? "" }),
      done: ({ suggestion }) => `${suggestion?.suggestion_id} is rejected.`,
    },
  ],
  empty: "No suggestions.",
});
