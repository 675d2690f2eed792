// The pages by the first part of their address, and the navigation.

import { access } from "../pages/access";
import { apply } from "../pages/apply";
import { events } from "../pages/events";
import { job } from "../pages/job";
import { jobs } from "../pages/jobs";
import { logs } from "../pages/logs";
import { node } from "../pages/node";
import { nodes } from "../pages/nodes";
import { notFound } from "../pages/not_found";
import { overview } from "../pages/overview";
import { set } from "../pages/set";
import { sets } from "../pages/sets";
import { workload } from "../pages/workload";
import { workloads } from "../pages/workloads";
import type { Page } from "./page";
import type { Route } from "./router";

const LISTS: Record<string, Page> = { "": overview, workloads, sets, jobs, nodes, events, logs, apply, access };
const DETAILS: Record<string, Page> = { nodes: node, workloads: workload, sets: set, jobs: job };

export const NAVIGATION: [section: string, text: string][] = [
  ["", "Overview"], ["workloads", "Workloads"], ["sets", "Sets"], ["jobs", "Jobs"], ["nodes", "Nodes"], ["events", "Events"],
  ["logs", "Logs"],
  ["apply", "Apply"], ["access", "Access"],
];

export function pageOf({ section, id, isKnown }: Route): Page {
  const pages = id ? DETAILS : LISTS;
  const found = isKnown && Object.hasOwn(pages, section) ? pages[section] : undefined;
  return found ?? notFound;
}
