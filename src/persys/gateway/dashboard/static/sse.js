// Server-sent events over fetch: EventSource cannot send an Authorization header.

/** Pieces of text into messages {id, event, data}; comments, which only keep the line open, are left out. */
export async function* messages(pieces) {
  let rest = "";
  for await (const piece of pieces) {
    const blocks = (rest + piece).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const message = read(block);
      if (message) yield message;
    }
  }
}

function read(block) {
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
