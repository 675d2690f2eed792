// The terminal of a workload: a command in a container, or the serial console of a VM. Shown to those who may use it.

import { useState } from "preact/hooks";
import { commandOf } from "../../api/exec";
import type { ExecStart, WorkloadView } from "../../api/schema";
import { Card, Quiet } from "../../components/card";
import { lazy } from "../../components/lazy";
import { isAllowed } from "../../state/store";
import { servicesOf } from "./services";

const TerminalSession = lazy(async () => (await import("../../components/terminal")).default);

// The first shell that the image has.
const SHELL = ["sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh"];

export function TerminalCard({ view }: { view: WorkloadView }) {
  const [start, setStart] = useState<ExecStart | null>(null);
  const id = view.workload_id ?? "", isVm = view.type === "vm";
  if (!isAllowed("exec")) return null;
  return (
    <Card title={isVm ? "Console" : "Terminal"} width="wide">
      {start
        ? <TerminalSession id={id} start={start} label={isVm ? `Console of ${id}` : `Terminal of ${id}`} onEnd={() => setStart(null)} />
        : view.status !== "Running"
          ? <Quiet>Available while the workload runs.</Quiet>
          : isVm ? <ConsoleForm onStart={setStart} /> : <CommandForm view={view} onStart={setStart} />}
    </Card>
  );
}

interface FormProps {
  onStart: (start: ExecStart) => void;
}

function CommandForm({ view, onStart }: FormProps & { view: WorkloadView }) {
  const services = servicesOf(view).map(({ name }) => name);
  const [service, setService] = useState(services[0] ?? "");
  const [line, setLine] = useState("");
  const command = commandOf(line);
  const open = (event: Event) => {
    event.preventDefault();
    if (command) onStart({ service, command: command.length ? command : SHELL, tty: true });
  };
  return (
    <form class="row filters" onSubmit={open}>
      {services.length > 0 && (
        <label><span>Service</span>
          <select name="service" value={service} onChange={(event) => setService(event.currentTarget.value)}>
            {services.map((name) => <option value={name} key={name}>{name}</option>)}
          </select>
        </label>
      )}
      <label><span>Command</span>
        <input name="command" value={line} placeholder="shell" autocomplete="off" spellcheck={false} onInput={(event) => setLine(event.currentTarget.value)} />
      </label>
      <button type="submit" class="primary" disabled={!command}>Open terminal</button>
      {!command && <span class="callout bad" role="alert">A quote is not closed.</span>}
    </form>
  );
}

function ConsoleForm({ onStart }: FormProps) {
  const [force, setForce] = useState(false);
  return (
    <form class="row" onSubmit={(event) => { event.preventDefault(); onStart({ console: true, tty: true, force }); }}>
      <button type="submit" class="primary">Open console</button>
      <label><input type="checkbox" name="force" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} /> Disconnect another session</label>
    </form>
  );
}
