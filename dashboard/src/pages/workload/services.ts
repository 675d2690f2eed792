// The services of a Compose stack, as the agent reports them: web=running,db=exited

import type { WorkloadView } from "../../api/schema";

export interface Service {
  name: string;
  state: string;
}

export function servicesOf(view: WorkloadView): Service[] {
  const text = view.metadata?.["compose.services"];
  if (!text) return [];
  return text.split(",").map((service) => {
    const [name = "", state = ""] = service.split("=");
    return { name, state };
  });
}
