import { expect, test } from "vitest";
import { pointsOf } from "./usage_history";

test("a series becomes points in milliseconds", () => {
  const usage = { times: [1, 2], series: [{ name: "cpu_percent", values: [5, 7] }] };
  expect(pointsOf(usage, "cpu_percent")).toEqual([[1000, 5], [2000, 7]]);
  expect(pointsOf(usage, "other")).toEqual([[1000, 0], [2000, 0]]);
});
