// The request of each kind of operation.

import { expect, test } from "vitest";
import { queryOf, requestOf } from "./client";

test("fields of the path are escaped and the rest is the query", () => {
  const [url, options] = requestOf("DeleteVolume", { node_id: "a/b", workload_id: "w?", name: "data" });

  expect(url).toBe("/volumes/a%2Fb/w%3F/data");
  expect(options.method).toBe("DELETE");
});

test("a read has no idempotency key, and empty fields are left out", () => {
  const [url, options] = requestOf("ListWorkloads", { node_id: "", limit: 5, cursor: undefined });

  expect(url).toBe("/workloads?limit=5");
  expect(options.headers).toEqual({});
});

test("a change has its fields in the body and a new key each time", () => {
  const [url, first] = requestOf("ScaleSet", { set_id: "web", replicas: 3 });
  const [, second] = requestOf("ScaleSet", { set_id: "web", replicas: 3 });

  expect(url).toBe("/sets/web/scale");
  expect(JSON.parse(String(first.body))).toEqual({ set_id: "web", replicas: 3 });
  expect(first.headers).not.toEqual(second.headers);
});

test("a list in the query is repeated", () => {
  expect(queryOf({ kinds: ["A", "B"], limit: 1 })).toBe("kinds=A&kinds=B&limit=1");
});
