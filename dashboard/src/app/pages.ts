// The pages by the first part of their address, and the navigation.

import { access } from "../pages/access";
import { apply } from "../pages/apply";
import { deploy } from "../pages/deploy";
import { events } from "../pages/events";
import { job } from "../pages/job";
import { jobs } from "../pages/jobs";
import { audit, tokens } from "../pages/lists/access";
import { federation, nodepools, services, suggestions } from "../pages/lists/cluster";
import { images, secrets, volumes } from "../pages/lists/data";
import { drifts, orphans } from "../pages/lists/drift";
import { more } from "../pages/more";
import { node } from "../pages/node";
import { nodepool } from "../pages/nodepool";
import { nodes } from "../pages/nodes";
import { notFound } from "../pages/not_found";
import { overview } from "../pages/overview";
import { service } from "../pages/service";
import { set } from "../pages/set";
import { sets } from "../pages/sets";
import { workload } from "../pages/workload";
import { workloads } from "../pages/workloads";
import type { Page } from "./page";
import type { Route } from "./router";

const MORE: Record<string, Page> = { deploy, more, services, nodepools, federation, volumes, images, secrets, drifts, orphans, suggestions, tokens, audit };
const LISTS: Record<string, Page> = { "": overview, workloads, sets, jobs, nodes, events, apply, access, ...MORE };
const DETAILS: Record<string, Page> = { nodes: node, workloads: workload, sets: set, jobs: job, services: service, nodepools: nodepool };

export const NAVIGATION: [section: string, text: string][] = [
  ["", "Overview"], ["workloads", "Workloads"], ["sets", "Sets"], ["jobs", "Jobs"], ["nodes", "Nodes"], ["events", "Events"],
  ["deploy", "Deploy"], ["apply", "Apply"], ["more", "More"], ["access", "Access"],
];

export function pageOf({ section, id, isKnown }: Route): Page {
  const pages = id ? DETAILS : LISTS;
  const found = isKnown && Object.hasOwn(pages, section) ? pages[section] : undefined;
  return found ?? notFound;
}
