// The explanation of a placement, node by node.

import { h } from "../dom.js";
import { nodeLink, table } from "../components.js";

export function explanation(response) {
  return [
    h("p", {}, response.summary ?? ""),
    response.changes?.length > 0 && [h("h3", {}, "Changes that would place it"), h("ul", {}, response.changes.slice(0, 5).map((change) => h("li", {}, change)))],
    h("details", {}, h("summary", {}, `Node by node (${response.fit_count ?? 0} of ${response.node_count ?? 0} can run it)`),
      table("Result for each node", ["Node", "Result", "Reason"], (response.nodes ?? []).map((node) => row(node, response)), "No nodes.")),
  ];
}

function row(node, response) {
  const result = node.node_id === response.assigned_node_id ? "selected" : node.fits ? "fits" : "rejected";
  return [nodeLink(node.node_id), result, node.fits ? score(node) : rejection(node)];
}

const rejection = (node) => `${node.detail ?? node.filter}${node.missing ? ` by ${node.missing} ${node.unit ?? ""}` : ""}`;
const score = (node) => (node.score ?? []).map((part) => part.detail || `${part.name} ${part.value ?? 0}`).join(", ");
