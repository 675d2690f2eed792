// The buttons of a node: cordon, uncordon and drain.

import { call } from "../../api/client";
import type { NodeView } from "../../api/schema";
import { ActionButton } from "../../components/action_button";
import { perform, performConfirmed } from "../../components/dialog";

export function NodeActions({ node }: { node: NodeView }) {
  const id = node.node_id ?? "";
  const isClosed = Boolean(node.cordoned || node.drain);
  return (
    <span class="row">
      {isClosed && (
        <ActionButton permission="nodes" onClick={() => perform(() => call("UncordonNode", { node_id: id }), `${id} is schedulable again.`)}>Uncordon</ActionButton>
      )}
      {!isClosed && <ActionButton permission="nodes" onClick={() => cordon(id)}>Cordon …</ActionButton>}
      {!node.drain && <ActionButton permission="nodes" class="danger" onClick={() => drain(id)}>Drain …</ActionButton>}
    </span>
  );
}

const cordon = (id: string) => performConfirmed(
  { title: `Cordon ${id}?`, text: "It gets no new workloads. Its workloads continue to run.", verb: "Cordon" },
  () => call("CordonNode", { node_id: id }), `${id} is cordoned.`);

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
