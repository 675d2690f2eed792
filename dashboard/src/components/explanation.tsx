// The explanation of a placement, node by node.

import type { ExplainWorkloadResponse, NodeVerdict } from "../api/schema";
import { NodeLink } from "./links";
import { Table } from "./table";

const CHANGES_SHOWN = 5;

export function Explanation({ response }: { response: ExplainWorkloadResponse }) {
  const { changes = [], nodes = [] } = response;
  return (
    <>
      <p>{response.summary ?? ""}</p>
      {changes.length > 0 && (
        <>
          <h3>Changes that would place it</h3>
          <ul>{changes.slice(0, CHANGES_SHOWN).map((change) => <li key={change}>{change}</li>)}</ul>
        </>
      )}
      <details>
        <summary>Node by node ({response.fit_count ?? 0} of {response.node_count ?? 0} can run it)</summary>
        <Table caption="Result for each node" heads={["Node", "Result", "Reason"]} empty="No nodes."
          rows={nodes.map((node) => [<NodeLink id={node.node_id} />, resultOf(node, response), node.fits ? scoreOf(node) : rejectionOf(node)])} />
      </details>
    </>
  );
}

function resultOf(node: NodeVerdict, response: ExplainWorkloadResponse): string {
  if (node.node_id === response.assigned_node_id) return "selected";
  return node.fits ? "fits" : "rejected";
}

const rejectionOf = (node: NodeVerdict): string => `${node.detail ?? node.filter}${node.missing ? ` by ${node.missing} ${node.unit ?? ""}` : ""}`;
const scoreOf = (node: NodeVerdict): string => (node.score ?? []).map((part) => part.detail || `${part.name} ${part.value ?? 0}`).join(", ");
