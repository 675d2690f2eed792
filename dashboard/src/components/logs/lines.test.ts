// Lines of logs: hostile content, order, limits and search.

import { expect, test } from "vitest";
import { base64Of } from "../../api/exec";
import { asText, highlighted, Lines, LINES_MAX, shown } from "./lines";

const chunk = (text: string, service = "", stream = "stdout") => ({ data: base64Of(new TextEncoder().encode(text)), service, stream });

test("escape sequences and control characters are removed, markup stays text", () => {
  expect(shown("\u001b[31mred\u001b[0m \u001b]0;title\u0007<b>x</b>\r\u0000\u202eevil")).toBe("red <b>x</b>evil");
});

test("lines of several logs are ordered by time", () => {
  const lines = new Lines();
  lines.add("a", chunk("2026-01-01T00:00:01.5Z one\n2026-01-01T00:00:03Z three\n"));
  lines.add("b", chunk("2026-01-01T00:00:02Z two\n", "web", "stderr"));

  expect(lines.all.map((line) => line.text)).toEqual(["one", "two", "three"]);
  expect(lines.all[1]).toMatchObject({ source: "b", service: "web", isError: true });
  expect(asText(lines.all, true).split("\n")[1]).toBe("2026-01-01T00:00:02Z b/web two");
});

test("a line may arrive in parts, also within a character", () => {
  const lines = new Lines(), data = new TextEncoder().encode("grün\n");
  lines.add("a", { data: base64Of(data.subarray(0, 3)) });
  lines.add("a", { data: base64Of(data.subarray(3)) });

  expect(lines.all.map((line) => line.text)).toEqual(["grün"]);
});

test("the number and the length of lines are limited", () => {
  const lines = new Lines();
  for (let count = 0; count < LINES_MAX + 50; count += 1) lines.add("a", chunk(`${count}\n`));
  lines.add("a", chunk("x".repeat(100_000)));

  expect(lines.all.length).toBe(LINES_MAX);
  expect(lines.all.at(-1)?.text.length).toBeLessThan(10_000);
  lines.drop("a");
  expect(lines.all).toEqual([]);
});

test.each([["aXbx", "x", ["a", "X", "b", "x", ""]], ["abc", "", ["abc"]], ["abc", "z", ["abc"]]])("%j searched for %j is %j", (text, wanted, parts) => {
  expect(highlighted(text, wanted)).toEqual(parts);
});
