// Server-sent events in chunks of any size.

import { expect, test } from "vitest";
import { messages, type Message } from "./stream";

async function* chunked(text: string, size: number): AsyncGenerator<string> {
  for (let at = 0; at < text.length; at += size) yield text.slice(at, at + size);
}

const TEXT = ": comment\n\nid: 7\nevent: change\ndata: {\"a\":\ndata: 1}\n\ndata: last\r\n\r\n";

test.each([1, 2, 7, 1000])("messages are the same in chunks of %i characters", async (size) => {
  const found: Message[] = [];
  for await (const message of messages(chunked(TEXT.replaceAll("\r\n", "\n"), size))) found.push(message);

  expect(found).toEqual([
    { id: "7", event: "change", data: "{\"a\":\n1}" },
    { id: "", event: "", data: "last" },
  ]);
});
