// Sessions of commands: what is sent, and how an end is described.

import { expect, test } from "vitest";
import { base64Of, bytesOf, commandOf, endingOf, protocols } from "./exec";

test.each([
  ["sh -c 'echo \"a  b\"'", ["sh", "-c", 'echo "a  b"']],
  ['  printf "a\\"b" c\\ d ', ["printf", 'a"b', "c d"]],
  ["x ''", ["x", ""]],
  ["", []],
  ["sh -c 'echo", null],
])("the command line %j has the words %j", (line, words) => {
  expect(commandOf(line)).toEqual(words);
});

test("every byte survives the way to the server and back", () => {
  const all = Uint8Array.from({ length: 256 }, (_, index) => index);

  expect(bytesOf(base64Of(all))).toEqual(all);
});

test("the token is a subprotocol, not a part of the URL", () => {
  expect(protocols("psk_a_b")).toEqual(["persys.exec.v1", "bearer.psk_a_b"]);
  expect(protocols("")).toEqual(["persys.exec.v1"]);
});

test.each([
  [{ code: 1000, reason: "", exitCode: 3, hasStarted: true }, 3, "exited with code 3"],
  [{ code: 4403, reason: "the token was revoked", exitCode: null, hasStarted: true }, null, "the token was revoked"],
  [{ code: 1006, reason: "", exitCode: null, hasStarted: true }, null, "connection was lost"],
  [{ code: 1006, reason: "", exitCode: null, hasStarted: false }, null, "could not be opened"],
])("the end %j has the exit code %j and says %j", (closed, code, text) => {
  const ending = endingOf(closed);

  expect(ending.code).toBe(code);
  expect(ending.reason).toContain(text);
});
