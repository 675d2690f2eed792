// Differences between the records and the nodes. An orphan is adopted or deleted after a look at its spec.

import { call } from "../../api/client";
import type { DriftView } from "../../api/schema";
import { Quiet } from "../../components/card";
import type { Question } from "../../components/dialog";
import { NodeLink, WorkloadLink } from "../../components/links";
import { listPage, type ListDefinition, type RowAction } from "../../components/list_page";
import { When } from "../../components/when";
import { words } from "../../format";

const ORPHAN = "orphan_on_agent";
const SECRET_FIELD = "secret:";

const addressOf = ({ node_id, workload_id }: DriftView) => ({ node_id: node_id ?? "", workload_id: workload_id ?? "" });

async function askToAdopt(drift: DriftView): Promise<Question> {
  const orphan = await call("GetOrphan", addressOf(drift));
  const { stringify } = await import("yaml");
  return {
    title: `Adopt ${drift.workload_id}?`, verb: "Adopt",
    text: `It continues to run on ${drift.node_id} and becomes a workload of the cluster with this spec.`,
    fields: <Orphan text={orphan.spec ? stringify(orphan.spec) : ""} secrets={orphan.secrets ?? []} />,
  };
}

/** The spec that only the node knows, and the secrets that it would get: each must be allowed. */
const Orphan = ({ text, secrets }: { text: string; secrets: string[] }) => (
  <>
    {text ? <pre class="log" tabIndex={0} aria-label="Spec">{text}</pre> : <Quiet>The node did not report its spec.</Quiet>}
    {secrets.length > 0 && <p>The spec refers to secrets. Allow each one that the workload may read:</p>}
    {secrets.map((name) => (
      <p key={name}><label><input type="checkbox" name={SECRET_FIELD + name} value="yes" required /> {name}</label></p>
    ))}
  </>
);

/** The names of the secrets that were allowed in the dialog. */
export const allowedSecrets = (answer: Record<string, string>): string[] =>
  Object.keys(answer).filter((field) => field.startsWith(SECRET_FIELD)).map((field) => field.slice(SECRET_FIELD.length));

const actions: RowAction<DriftView>[] = [
  {
    verb: "Adopt", permission: "nodes", isOffered: ({ type, adoptable }) => type === ORPHAN && Boolean(adoptable),
    question: askToAdopt,
    work: (drift, answer) => call("AdoptOrphan", { ...addressOf(drift), allow_secrets: allowedSecrets(answer) }),
    done: ({ workload_id: id }) => `${id} is adopted.`,
  },
  {
    verb: "Delete", permission: "nodes", isOffered: ({ type }) => type === ORPHAN,
    question: ({ node_id: node, workload_id: id }) => ({
      title: `Delete the orphan ${id}?`, verb: "Delete", danger: true, text: `It is stopped and removed from ${node}. This cannot be undone.`,
    }),
    work: (drift) => call("DeleteOrphan", addressOf(drift)),
    done: ({ workload_id: id }) => `${id} is being deleted.`,
  },
];

const read = async (type: string) => ({ items: (await call("ListDrifts", { type })).drifts ?? [] });

const shared: Omit<ListDefinition<DriftView>, "title" | "intro" | "read" | "empty"> = {
  permission: "read",
  nameOf: ({ workload_id: id }) => id ?? "",
  textOf: (drift) => [drift.workload_id, drift.node_id, drift.type, drift.detail, drift.state].join(" "),
  columns: [
    { head: "Workload", cell: ({ workload_id: id }) => <WorkloadLink id={id} /> },
    { head: "Node", cell: ({ node_id: id }) => <NodeLink id={id} /> },
    { head: "Type", cell: ({ type = "" }) => words(type.replaceAll("_", " ")) },
    { head: "Detail", cell: ({ detail }) => detail ?? "" },
    { head: "State", cell: ({ state }) => state || "–" },
    { head: "Found", cell: ({ detected_at: at }) => <When at={at} /> },
  ],
  actions,
};

export const drifts = listPage<DriftView>({
  ...shared,
  title: "Drift",
  intro: <>Differences between what is recorded and what the nodes report. All but orphans are repaired automatically.</>,
  read: () => read(""),
  empty: "No drift: nodes and records agree.",
});

export const orphans = listPage<DriftView>({
  ...shared,
  title: "Orphans",
  intro: <>Workloads that run on a node but are not assigned to it. Adopt or delete them; nothing is removed automatically.</>,
  read: () => read(ORPHAN),
  empty: "No orphans.",
});
