// The fields of the forms, as one table per kind of workload. The forms are drawn from it, and it turns their values
// into a spec file, which the gateway validates as any other.

import { stringify } from "yaml";

export type Kind = "container" | "vm" | "git";
export type Values = Record<string, string>;

export interface Field {
  name: string;
  label: string;
  path: string[]; // of the value in the spec file
  convert: (text: string) => unknown; // throws FieldError
  input?: "number" | "lines"; // one line of text if it is not given
  required?: boolean;
  usual?: string; // the initial value
  example?: string;
}

export class FieldError extends Error {}

const text = (value: string): string => value.trim();

function number(value: string): number {
  const found = Number(value.trim());
  if (!Number.isInteger(found) || found < 0) throw new FieldError(`invalid number '${value.trim()}': expected a whole number, for example 512`);
  return found;
}

const lines = (value: string): string[] => value.split("\n").map((line) => line.trim()).filter(Boolean);

function pairs(value: string): Record<string, string> {
  return Object.fromEntries(lines(value).map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new FieldError(`invalid variable '${line}': expected NAME=VALUE`);
    return [line.slice(0, at), line.slice(at + 1)];
  }));
}

function volumes(value: string): { name: string; mount_path: string }[] {
  return lines(value).map((line) => {
    const at = line.indexOf(":");
    const path = line.slice(at + 1);
    if (at < 1 || !path.startsWith("/")) throw new FieldError(`invalid volume '${line}': expected NAME:PATH, for example data:/var/lib/data`);
    return { name: line.slice(0, at), mount_path: path };
  });
}

const ID: Field = { name: "id", label: "Name", path: ["id"], convert: text, required: true, example: "web" };

export const FIELDS: Record<Kind, Field[]> = {
  container: [
    ID,
    { name: "image", label: "Image", path: ["container", "image"], convert: text, required: true, example: "nginx:1.27" },
    { name: "command", label: "Command, one argument per line (empty: that of the image)", path: ["container", "command"], convert: lines, input: "lines" },
    { name: "ports", label: "Ports, one HOST:CONTAINER per line", path: ["container", "ports"], convert: lines, input: "lines", example: "8080:80" },
    { name: "env", label: "Environment, one NAME=VALUE per line", path: ["container", "env"], convert: pairs, input: "lines", example: "API_KEY=secret://api-key" },
    { name: "volumes", label: "Volumes, one NAME:PATH per line", path: ["container", "managed_volumes"], convert: volumes, input: "lines", example: "data:/var/lib/data" },
    { name: "cpu", label: "CPU in millicores (1000 is one core)", path: ["resources", "cpu_millicores"], convert: number, input: "number", usual: "100" },
    { name: "memory", label: "Memory in MiB", path: ["resources", "memory_mb"], convert: number, input: "number", usual: "128" },
    { name: "health", label: "Health check", path: ["container", "health_check"], convert: text, example: "http:80/ or tcp:80" },
    { name: "restart", label: "Restart policy", path: ["container", "restart_policy"], convert: text, usual: "unless-stopped", example: "no, always, on-failure:3" },
  ],
  vm: [
    ID,
    { name: "image", label: "Image", path: ["vm", "os_image"], convert: text, required: true, example: "debian-12" },
    { name: "vcpus", label: "Virtual CPUs", path: ["vm", "vcpus"], convert: number, input: "number", usual: "1", required: true },
    { name: "memory", label: "Memory in MiB", path: ["vm", "memory_mb"], convert: number, input: "number", usual: "1024", required: true },
    { name: "disk", label: "Disk in GB (empty: the size of the image)", path: ["vm", "disks"], convert: (size) => [{ mount_point: "vda", size_gb: number(size) }], input: "number" },
    { name: "network", label: "Network", path: ["vm", "networks"], convert: (bridge) => [{ bridge: text(bridge), dhcp: true }], usual: "default" },
    { name: "user", label: "Login: user", path: ["vm", "login", "user"], convert: text, example: "admin" },
    { name: "keys", label: "Login: public SSH keys, one per line", path: ["vm", "login", "ssh_keys"], convert: lines, input: "lines", example: "ssh-ed25519 AAAA…" },
  ],
  git: [
    ID,
    { name: "repository", label: "Repository", path: ["compose", "git_repo"], convert: text, required: true, example: "https://git.example.com/shop/site.git" },
    { name: "ref", label: "Branch, tag or commit", path: ["compose", "git_ref"], convert: text, usual: "main" },
    { name: "path", label: "Compose file in the repository", path: ["compose", "git_path"], convert: text, example: "docker-compose.yml" },
    { name: "credential", label: "Name of a Git credential of the node", path: ["compose", "git_credential"], convert: text },
    { name: "env", label: "Variables, one NAME=VALUE per line", path: ["compose", "env"], convert: pairs, input: "lines" },
  ],
};

export const initialValues = (kind: Kind): Values =>
  Object.fromEntries(FIELDS[kind].map((field) => [field.name, field.usual ?? ""]));

export interface Formed {
  text: string; // the spec file
  errors: Record<string, string>; // by field
}

type Tree = { [key: string]: unknown };

/** The spec file of a form. Empty fields are left out. */
export function specOf(kind: Kind, values: Values): Formed {
  const spec: Tree = {};
  const errors: Record<string, string> = {};
  for (const field of FIELDS[kind]) {
    const value = values[field.name] ?? "";
    if (!value.trim()) continue;
    try {
      put(spec, field.path, field.convert(value));
    } catch (error) {
      if (!(error instanceof FieldError)) throw error;
      errors[field.name] = error.message;
    }
  }
  return { text: Object.keys(spec).length ? stringify(spec) : "", errors };
}

function put(tree: Tree, path: string[], value: unknown): void {
  const [first = "", ...rest] = path;
  if (rest.length) put((tree[first] ??= {}) as Tree, rest, value);
  else tree[first] = value;
}

/** The names of required fields that are empty. */
export const missingOf = (kind: Kind, values: Values): string[] =>
  FIELDS[kind].filter((field) => field.required && !values[field.name]?.trim()).map((field) => field.label);

/** A Compose file as a workload. */
export const stackOf = (id: string, composeFile: string): string => stringify({ id, compose: { inline_yaml: composeFile } });

/** A name for a stack from that of its file or folder: lower-case letters, digits and hyphens. */
export function nameOf(file: string): string {
  const base = file.replace(/\.(ya?ml|json)$/i, "").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 40);
  return base || "stack";
}
