// A terminal for one session: a command in a workload, or the serial console of a VM. Loaded on demand.

import { useEffect, useRef, useState } from "preact/hooks";
import { ExecSession, type Ending } from "../../api/exec";
import type { ExecStart } from "../../api/schema";
import { announce } from "../../app/announce";
import { openScreen } from "./screen";

interface Props {
  id: string;
  start: ExecStart;
  label: string;
  onEnd: () => void;
}

export default function TerminalSession({ id, start, label, onEnd }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [attempt, setAttempt] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const [ending, setEnding] = useState<Ending | null>(null);
  useEffect(() => {
    if (!box.current) return undefined;
    const screen = openScreen(box.current, label), { terminal } = screen;
    const encoder = new TextEncoder();
    let isShown = true;
    setEnding(null);
    const session = new ExecSession(id, { ...start, size: { rows: terminal.rows, columns: terminal.cols } }, {
      onStart: () => { if (!isShown) return; setOpen(true); terminal.focus(); announce(`${label} is open`); },
      onOutput: (data) => terminal.write(data),
      onEnd: (end) => { if (!isShown) return; setOpen(false); setEnding(end); terminal.options.disableStdin = true; announce(end.reason); },
    });
    terminal.onData((text) => session.write(encoder.encode(text)));
    terminal.onBinary((text) => session.write(Uint8Array.from(text, (one) => one.charCodeAt(0))));
    terminal.onResize(({ rows, cols }) => session.resize(rows, cols));
    return () => { isShown = false; session.close(); screen.dispose(); };
  }, [attempt]);
  return (
    <>
      <div class="terminal" ref={box} data-state={isOpen ? "open" : ending ? "ended" : "opening"} />
      <p class="row" role="status">
        {ending ? <span class={ending.code === 0 ? "" : "callout bad"}>{ending.reason}</span> : <span class="quiet">{isOpen ? `Connected to ${id}` : "Connecting …"}</span>}
        {ending && <button type="button" onClick={() => setAttempt((count) => count + 1)}>{start.console ? "Connect again" : "Run again"}</button>}
        <button type="button" onClick={onEnd}>Close</button>
      </p>
    </>
  );
}
