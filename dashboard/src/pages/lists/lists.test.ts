import { expect, test } from "vitest";
import { base64 } from "./data";
import { allowedSecrets } from "./drift";

test("a secret is sent as the bytes of its text, with the line ends of Unix", () => {
  expect(base64("pä\r\nss")).toBe(Buffer.from("pä\nss", "utf8").toString("base64"));
});

test("a long secret is encoded", () => {
  expect(atob(base64("x".repeat(300_000)))).toHaveLength(300_000);
});

test("the allowed secrets are those whose boxes were checked", () => {
  expect(allowedSecrets({ "secret:db": "yes", "secret:a:b": "yes", other: "x" })).toEqual(["db", "a:b"]);
});
