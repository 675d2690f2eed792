// The packaged examples of single workloads, as `persysctl init` writes them.

const FILES = import.meta.glob<string>("../../../../src/persys/examples/{compose,container,git,vm}.yaml", { query: "?raw", import: "default", eager: true });

export interface Template {
  name: string;
  about: string;
  text: string;
}

export const TEMPLATES: Template[] = Object.entries(FILES).map(([path, text]) => templateOf(path, text)).toSorted((a, b) => a.name.localeCompare(b.name));

/** The name of the file, and the first sentence of its first comment. */
export function templateOf(path: string, text: string): Template {
  const name = path.split("/").at(-1)?.replace(/\.yaml$/, "") ?? "";
  const [first = ""] = text.split("\n");
  return { name, about: /^# ([^.:]*)/.exec(first)?.[1] ?? "", text };
}
