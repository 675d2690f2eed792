// Links to the pages of single things.

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
