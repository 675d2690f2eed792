// Applies a spec that is pasted or loaded from a file.

import { useState } from "preact/hooks";
import type { Page } from "../../app/page";
import { SpecApply } from "../../components/spec_apply";

const EXAMPLE = `id: web
type: container
container:
  image: nginx:alpine
resources:
  cpu_millicores: 100
  memory_mb: 64
`;

function View() {
  const [text, setText] = useState("");
  return (
    <>
      <h1 tabIndex={-1}>Apply a spec</h1>
      <p>YAML or JSON, as for persysctl apply; a file may contain several documents.</p>
      <p>
        <label for="spec-file">Load a file </label>
        <input id="spec-file" type="file" accept=".yaml,.yml,.json" onChange={async (event) => setText(await event.currentTarget.files?.[0]?.text() ?? "")} />
      </p>
      <label for="spec">Spec</label>
      <textarea id="spec" rows={14} spellcheck={false} autocapitalize="off" placeholder={EXAMPLE} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <SpecApply text={text} />
    </>
  );
}

export const apply: Page = { title: () => "Apply", needs: () => ({}), View };
