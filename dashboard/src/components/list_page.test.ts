import { expect, test } from "vitest";
import { matching, summaryOf } from "./list_page";

test("an item is found if its text has all words", () => {
  const items = ["Web n1", "db n1", "web n2"];
  expect(matching(items, (item) => item, "WEB n1")).toEqual(["Web n1"]);
  expect(matching(items, (item) => item, "  ")).toEqual(items);
});

test("markup in a search is compared as text", () => {
  expect(matching(["<b>x</b>", "x"], (item) => item, "<b>")).toEqual(["<b>x</b>"]);
});

test("the summary says how many entries are found and shown", () => {
  expect(summaryOf(1, 1)).toBe("1 entry");
  expect(summaryOf(2, 5)).toBe("2 of 5 entries");
  expect(summaryOf(900, 900)).toBe("900 entries; the first 500 are shown");
});
