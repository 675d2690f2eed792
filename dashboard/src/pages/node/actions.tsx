// The buttons of a node: cordon, uncordon, drain and taints. Without the permission they are not offered.

import { call } from "../../api/client";
import type { NodeView } from "../../api/schema";
import { ActionButton } from "../../components/action_button";
import { perform, performConfirmed } from "../../components/dialog";
import { isAllowed } from "../../state/store";

export function NodeActions({ node }: { node: NodeView }) {
  const id = node.node_id ?? "";
  const isClosed = Boolean(node.cordoned || node.drain);
  if (!isAllowed("nodes")) return null;
  return (
    <span class="row">
      {isClosed && (
        <ActionButton permission="nodes" onClick={() => perform(() => call("UncordonNode", { node_id: id }), `${id} is schedulable again.`)}>
          {node.drain?.state === "draining" ? "Cancel drain" : "Uncordon"}
        </ActionButton>
      )}
      {!isClosed && <ActionButton permission="nodes" onClick={() => cordon(id)}>Cordon …</ActionButton>}
      {!node.drain && <ActionButton permission="nodes" class="danger" onClick={() => drain(id)}>Drain …</ActionButton>}
      <ActionButton permission="nodes" onClick={() => taint(node)}>Taints …</ActionButton>
    </span>
  );
}

const cordon = (id: string) => performConfirmed(
  { title: `Cordon ${id}?`, text: "It gets no new workloads. Its workloads continue to run.", verb: "Cordon" },
  () => call("CordonNode", { node_id: id }), `${id} is cordoned.`);

const taint = ({ node_id: id = "", taints = [] }: NodeView) => performConfirmed(
  {
    title: `Taints of ${id}`, verb: "Save",
    text: "Only workloads that tolerate all taints are placed on the node. One per line.",
    fields: <p><label for="taints">Taints</label><textarea id="taints" name="taints" rows={3} spellcheck={false} defaultValue={taints.join("\n")} /></p>,
  },
  ({ taints: text = "" }) => call("TaintNode", { node_id: id, taints: text.split(/\s+/).filter(Boolean) }), `The taints of ${id} are saved.`);

const drain = (id: string) => performConfirmed(
  {
    title: `Drain ${id}?`, verb: "Drain", danger: true,
    text: "It gets no new workloads, and workloads without local data move to other nodes.",
    fields: (
      <p>
        <label for="deadline">Deadline in minutes (empty: none) </label>
        <input id="deadline" name="minutes" type="number" min="1" max="100000" />
      </p>
    ),
  },
  ({ minutes }) => call("DrainNode", { node_id: id, deadline_seconds: String(60 * Number(minutes || 0)) }), `${id} is being drained.`);
