import { expect, test } from "vitest";
import { joinCommands } from "./join";

test("the command names the scheduler if it is known", () => {
  expect(joinCommands("10.0.0.1:8085")).toContain("join 10.0.0.1:8085 TOKEN\n");
  expect(joinCommands("")).toContain("join SCHEDULER:8085 TOKEN\n");
});
