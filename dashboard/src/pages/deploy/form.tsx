// A form that is drawn from the table of fields.

import { useState } from "preact/hooks";
import { FIELDS, initialValues, missingOf, specOf, type Field, type Kind, type Values } from "./fields";

interface Props {
  kind: Kind;
  onSpec: (text: string, problem: string) => void;
}

export function SpecForm({ kind, onSpec }: Props) {
  const [values, setValues] = useState<Values>(() => initialValues(kind));
  const { errors } = specOf(kind, values);
  const edit = (name: string, value: string) => {
    const changed = { ...values, [name]: value };
    setValues(changed);
    const { text, errors: found } = specOf(kind, changed);
    onSpec(text, problemOf(missingOf(kind, changed), found));
  };
  return (
    <form class="fields" aria-label="Workload" onSubmit={(event) => event.preventDefault()}>
      {FIELDS[kind].map((field) => (
        <Input key={field.name} field={field} value={values[field.name] ?? ""} error={errors[field.name] ?? ""} onInput={(value) => edit(field.name, value)} />
      ))}
    </form>
  );
}

export function problemOf(missing: string[], errors: Record<string, string>): string {
  const [first] = Object.values(errors);
  return first ?? (missing.length ? `Required: ${missing.join(", ")}` : "");
}

interface InputProps {
  field: Field;
  value: string;
  error: string;
  onInput: (value: string) => void;
}

function Input({ field, value, error, onInput }: InputProps) {
  const id = `field-${field.name}`;
  const shared = {
    id, name: field.name, value, required: field.required, placeholder: field.example, autocomplete: "off", spellcheck: false,
    "aria-invalid": error ? true : undefined, "aria-describedby": error ? `${id}-error` : undefined,
  } as const;
  return (
    <div>
      <label for={id}>{field.label}{field.required && " (required)"}</label>
      {field.input === "lines" && <textarea {...shared} rows={2} onInput={(event) => onInput(event.currentTarget.value)} />}
      {field.input === "number" && <input {...shared} type="number" min={0} onInput={(event) => onInput(event.currentTarget.value)} />}
      {!field.input && <input {...shared} type="text" onInput={(event) => onInput(event.currentTarget.value)} />}
      {error && <span class="status bad" id={`${id}-error`}>{error}</span>}
    </div>
  );
}
