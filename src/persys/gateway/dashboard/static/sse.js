// Server-sent events over fetch: EventSource cannot send an Authorization header.

/** Parses chunks of text into messages {id, event, data}. Comments, which only keep the connection open, are skipped. */
export async function* messages(chunks) {
  let rest = "";
  for await (const chunk of chunks) {
    const blocks = (rest + chunk).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const message = parse(block);
      if (message) yield message;
    }
  }
}

function parse(block) {
  const message = { id: "", event: "", data: "" };
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (name === "data") message.data += message.data ? `\n${value}` : value;
    else if (name === "id" || name === "event") message[name] = value;
  }
  return message.data || message.id ? message : null;
}
