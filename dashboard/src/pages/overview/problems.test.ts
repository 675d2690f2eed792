// The lines of the problem list, and the size and colour of tiles.

import { expect, test } from "vitest";
import { problemsOf } from "./problems";
import { sideOf, toneOf } from "./tiles";

const NODES = new Map([
  ["n1", { node_id: "n1", status: "Ready" }],
  ["n2", { node_id: "n2", status: "Ready", cordoned: true }],
  ["n3", { node_id: "n3", status: "NotReady", status_reason: "no heartbeat for 40 s" }],
]);

test("problems name the command, and the most severe are first", () => {
  const lines = problemsOf({ nodes: NODES, mode: { mode: "normal" } }, [
    { workload_id: "p", status: "Pending", reason: { code: "Unplaceable", message: "no room" } },
    { workload_id: "f", status: "Failed", reason: { code: "ImageNotFound" } },
    { workload_id: "u", status: "Running", metadata: { "container.health": "unhealthy" } },
  ]);

  expect(lines.map(({ subject, tone, command }) => [subject, tone, command])).toEqual([
    ["n3", "bad", "persysctl node get n3"],
    ["f", "bad", "persysctl workload retry f"],
    ["u", "bad", "persysctl logs u"],
    ["n2", "wait", "persysctl node uncordon n2"],
    ["p", "wait", "persysctl explain p"],
  ]);
});

test("a cluster without problems has none", () => {
  expect(problemsOf({ nodes: new Map([["n1", { node_id: "n1", status: "Ready" }]]), mode: { mode: "normal" } }, [])).toEqual([]);
});

test("the area of a tile is in proportion to the capacity, and small ones stay visible", () => {
  expect(sideOf(16, 16)).toBe(132);
  expect(sideOf(4, 16)).toBe(66);
  expect(sideOf(0.01, 16)).toBe(44);
});

test("a node has the colour of its health", () => {
  expect([...NODES.values()].map(toneOf)).toEqual(["good", "wait", "bad"]);
});
