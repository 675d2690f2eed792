// What placement says of a workload, node by node.

import { h } from "../dom.js";
import { nodeLink, table } from "../parts.js";

export function explanation(answer) {
  return [
    h("p", {}, answer.summary ?? ""),
    answer.changes?.length > 0 && [h("h3", {}, "Changes that would place it"), h("ul", {}, answer.changes.slice(0, 5).map((change) => h("li", {}, change)))],
    h("details", {}, h("summary", {}, `Node by node (${answer.fit_count ?? 0} of ${answer.node_count ?? 0} can run it)`),
      table("Verdict on each node", ["Node", "Verdict", "Why"], (answer.nodes ?? []).map((node) => row(node, answer)), "There are no nodes.")),
  ];
}

function row(node, answer) {
  const verdict = node.node_id === answer.assigned_node_id ? "chosen" : node.fits ? "fits" : "refused";
  return [nodeLink(node.node_id), verdict, node.fits ? score(node) : refusal(node)];
}

const refusal = (node) => `${node.detail ?? node.filter}${node.missing ? ` by ${node.missing} ${node.unit ?? ""}` : ""}`;
const score = (node) => (node.score ?? []).map((part) => part.detail || `${part.name} ${part.value ?? 0}`).join(", ");
