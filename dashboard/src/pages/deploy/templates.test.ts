import { expect, test } from "vitest";
import { TEMPLATES } from "./templates";

test("each template has a name, a description and a spec", () => {
  expect(TEMPLATES.map(({ name }) => name)).toEqual(["compose", "container", "git", "vm"]);
  for (const { about, text } of TEMPLATES) {
    expect(about).toMatch(/^A /);
    expect(text).toContain("id: ");
  }
});
