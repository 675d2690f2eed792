// Numbers and times as text.

import { expect, test } from "vitest";
import { ago, bytes, counted, duration, setServerTime, words } from "./format";

test.each([[5, "5 s"], [119, "119 s"], [120, "2 min"], [7200, "2 h"], [200_000, "2 days"]])("%i seconds are %s", (seconds, text) => {
  expect(duration(seconds)).toBe(text);
});

test.each([[0, "0 B"], [2048, "2.0 KiB"], ["52428800", "50 MiB"], [undefined, "0 B"]])("%j bytes are %s", (count, text) => {
  expect(bytes(count)).toBe(text);
});

test("ages are by the clock of the server", () => {
  setServerTime(new Date(Date.now() + 3_630_000).toUTCString());

  expect(ago(new Date().toISOString())).toBe("60 min ago");
  setServerTime(new Date().toUTCString());
});

test("a count has a singular and a plural", () => {
  expect([counted(1, "node"), counted(2, "node")]).toEqual(["1 node", "2 nodes"]);
});

test("the kind of an event is shown in words", () => {
  expect(words("WorkloadStopAsked")).toBe("workload stop asked");
});
