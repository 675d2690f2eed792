// Links to the pages of single things.

import type { ComponentType } from "preact";
import { segment } from "../api/client";
import type { Membership } from "../api/schema";

export const workloadUrl = (id: string): string => `#/workloads/${segment(id)}`;

export const WorkloadLink = ({ id = "" }: { id?: string | undefined }) => <a href={workloadUrl(id)}>{id}</a>;

export const setUrl = (id: string): string => `#/sets/${segment(id)}`;
export const jobUrl = (id: string): string => `#/jobs/${segment(id)}`;

/** The set or job that a workload belongs to. */
export function OwnerLink({ membership }: { membership: Membership | undefined }) {
  if (!membership?.owner && !membership?.job_id) return null;
  return membership.job_id
    ? <>job <a href={jobUrl(membership.job_id)}>{membership.job_id}</a></>
    : <>set <a href={setUrl(membership.owner ?? "")}>{membership.owner}</a></>;
}

export const NodeLink = ({ id }: { id?: string | undefined }) => (id ? <a href={`#/nodes/${segment(id)}`}>{id}</a> : <>–</>);

const joined = (ids: string[] | undefined, Link: ComponentType<{ id: string }>) => (
  ids?.length ? <>{ids.map((id, index) => <span key={id}>{index > 0 && ", "}<Link id={id} /></span>)}</> : <>–</>
);
export const WorkloadLinks = ({ ids }: { ids: string[] | undefined }) => joined(ids, WorkloadLink);
export const NodeLinks = ({ ids }: { ids: string[] | undefined }) => joined(ids, NodeLink);
