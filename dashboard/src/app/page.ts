// What each page of the dashboard provides to the frame.

import type { ComponentType } from "preact";
import type { Needs } from "../state/sync";
import type { Route } from "./router";

export interface Page {
  title: (route: Route) => string;
  needs: (route: Route) => Needs;
  View: ComponentType<{ route: Route }>;
}
