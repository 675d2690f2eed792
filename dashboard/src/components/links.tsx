// Links to the pages of single things.

import { segment } from "../api/client";

export const workloadUrl = (id: string): string => `#/workloads/${segment(id)}`;

export const WorkloadLink = ({ id = "" }: { id?: string | undefined }) => <a href={workloadUrl(id)}>{id}</a>;

export const NodeLink = ({ id }: { id?: string | undefined }) => (id ? <a href={`#/nodes/${segment(id)}`}>{id}</a> : <>–</>);
