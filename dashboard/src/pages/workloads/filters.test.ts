// Filters and orders of the list of workloads.

import { expect, test } from "vitest";
import { indexed } from "../../state/store";
import { filterWorkloads, nextSort, NO_FILTERS } from "./filters";

const LIST = [
  indexed({ workload_id: "b", status: "Running", type: "vm", assigned_node_id: "n2" }),
  indexed({ workload_id: "a", status: "Failed", type: "container", assigned_node_id: "n1", reason: { message: "No Space" } }),
  indexed({ workload_id: "c", status: "Running", type: "container", assigned_node_id: "n1", metadata: { "container.health": "unhealthy" } }),
];
const shown = (filters: Partial<typeof NO_FILTERS>) => filterWorkloads(LIST, { ...NO_FILTERS, ...filters }).map((view) => view.workload_id);

test.each([
  [{}, ["a", "b", "c"]],
  [{ status: "Running" }, ["b", "c"]],
  [{ health: "unhealthy" }, ["c"]],
  [{ type: "container", node: "n1" }, ["a", "c"]],
  [{ q: "space NO" }, ["a"]],
  [{ sort: "-Workload" }, ["c", "b", "a"]],
  [{ sort: "Node" }, ["a", "c", "b"]],
  [{ sort: "toString" }, ["a", "b", "c"]],
])("%j shows %j", (filters, ids) => {
  expect(shown(filters)).toEqual(ids);
});

test("a column is sorted up, then down, then not", () => {
  expect(nextSort("", "Node")).toBe("Node");
  expect(nextSort("Node", "Node")).toBe("-Node");
  expect(nextSort("-Node", "Node")).toBe("");
  expect(nextSort("-Node", "Type")).toBe("Type");
});
