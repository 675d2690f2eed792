// Addresses of pages.

import { expect, test } from "vitest";
import { parseRoute } from "./router";

test("an address has a section, an id and filters", () => {
  expect(parseRoute("#/workloads/a%2Fb?status=Running&q=x%20y")).toEqual({
    section: "workloads", id: "a/b", isKnown: true, query: { status: "Running", q: "x y" },
  });
});

test.each(["#/%E0%A4%A", "#/nodes/n1/more"])("%s is not a known address", (hash) => {
  expect(parseRoute(hash).isKnown).toBe(false);
});

test.each(["", "#", "#/"])("%j is the first page", (hash) => {
  expect(parseRoute(hash)).toMatchObject({ section: "", id: "", isKnown: true });
});
