// Deploys a workload: from a form, a template, a Compose file or a Git repository. Each source writes a spec, which can
// be edited, is previewed, applied, and followed until it runs or has failed.

import { useState } from "preact/hooks";
import type { Route } from "../../app/router";
import { Quiet } from "../../components/card";
import { SpecApply } from "../../components/spec_apply";
import { isAllowed, useAppState } from "../../state/store";
import { nameOf, stackOf, type Kind } from "./fields";
import { SpecForm } from "./form";
import { TEMPLATES } from "./templates";

type OnSpec = (text: string, problem: string) => void;

const SOURCES: [source: string, text: string][] = [
  ["container", "Container"], ["vm", "Virtual machine"], ["compose", "Compose file"], ["git", "Git"], ["template", "Template"],
];
const FORMS: Record<string, Kind> = { container: "container", vm: "vm", git: "git" };
const FILE_BYTES_MAX = 1024 * 1024; // as the gateway

export function Deploy({ route }: { route: Route }) {
  const { identity } = useAppState();
  const [[text, problem], setSpec] = useState(["", ""]);
  const source = SOURCES.some(([name]) => name === route.query["from"]) ? route.query["from"] ?? "" : "container";
  const form = FORMS[source];
  const onSpec: OnSpec = (found, why) => setSpec([found, why]);
  return (
    <>
      <nav class="sources" aria-label="Sources">
        {SOURCES.map(([name, label]) => <a key={name} href={`#/deploy?from=${name}`} aria-current={name === source ? "page" : undefined}>{label}</a>)}
      </nav>
      {identity && !isAllowed("workloads") && <Quiet>Your role may preview a workload, but not apply it.</Quiet>}
      {form && <SpecForm kind={form} onSpec={onSpec} />}
      {source === "compose" && <ComposeFile onSpec={onSpec} />}
      {source === "template" && <Templates onSpec={onSpec} />}
      <label for="spec">Spec</label>
      <textarea id="spec" rows={14} spellcheck={false} autocapitalize="off" value={text} onInput={(event) => onSpec(event.currentTarget.value, "")} />
      <SpecApply text={text} problem={text ? problem : "Fill in the form, or write a spec."} />
    </>
  );
}

function Templates({ onSpec }: { onSpec: OnSpec }) {
  return (
    <ul class="templates" aria-label="Templates">
      {TEMPLATES.map(({ name, about, text }) => (
        <li key={name}><strong>{name}</strong><p>{about}</p><button type="button" onClick={() => onSpec(text, "")}>{`Use ${name}`}</button></li>
      ))}
    </ul>
  );
}

function ComposeFile({ onSpec }: { onSpec: OnSpec }) {
  const [isOver, setOver] = useState(false);
  const [[name, content, errorText], setFile] = useState(["", "", ""]);
  const show = (id: string, found: string) => {
    setFile([id, found, ""]);
    onSpec(found ? stackOf(id, found) : "", id ? "" : "Required: Name");
  };
  const take = async (file: File | undefined) => {
    if (!file) return;
    if (file.size > FILE_BYTES_MAX) setFile([name, "", `${file.name} is too large: expected at most 1 MiB`]);
    else show(name || nameOf(file.name), await file.text());
  };
  return (
    <div class={isOver ? "drop over" : "drop"} data-drop onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)}
      onDrop={(event) => { event.preventDefault(); setOver(false); void take(event.dataTransfer?.files[0]); }}>
      <p>Drop a Compose file here, or <label for="compose-file">choose one </label>
        <input id="compose-file" type="file" accept=".yaml,.yml" onChange={(event) => { void take(event.currentTarget.files?.[0]); }} /></p>
      <p><label for="field-id">Name </label><input id="field-id" name="id" value={name} autocomplete="off" onInput={(event) => show(event.currentTarget.value, content)} /></p>
      {errorText && <p class="status bad" role="alert">{errorText}</p>}
    </div>
  );
}
