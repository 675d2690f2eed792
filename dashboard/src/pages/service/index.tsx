// One service: where clients reach it, its members, and why a member is left out.

import { call } from "../../api/client";
import type { ServiceView } from "../../api/schema";
import type { Page } from "../../app/page";
import type { Route } from "../../app/router";
import { Card, Facts, Quiet, Tags } from "../../components/card";
import { NodeLink, setUrl, WorkloadLink } from "../../components/links";
import { RowActions, type RowAction } from "../../components/list_page";
import { Status } from "../../components/status";
import { Table } from "../../components/table";
import { When } from "../../components/when";
import { useReading } from "../../state/reading";
import { emptyText, useAppState } from "../../state/store";
import { portsOf } from "../lists/cluster";

const READ_EVERY_MS = 3000;

const ACTIONS: RowAction<ServiceView>[] = [{
  verb: "Delete", permission: "workloads",
  question: ({ spec }) => ({
    title: `Delete the service ${spec?.service_id}?`, verb: "Delete", danger: true, text: "Its name is removed from DNS and proxies. Its members continue to run.",
  }),
  work: ({ spec }) => call("DeleteService", { service_id: spec?.service_id ?? "" }),
  done: ({ spec }) => `${spec?.service_id} is deleted.`,
}];

function View({ route: { id } }: { route: Route }) {
  const { events } = useAppState();
  const { value, problem, reload } = useReading(() => call("GetService", { service_id: id }), events.at(-1)?.sequence, READ_EVERY_MS);
  const view = problem?.status === 404 ? undefined : value?.service;
  if (!view) {
    const text = problem?.status === 404 ? "The service does not exist; it may have been deleted." : problem?.message ?? emptyText(false);
    return <><h1 tabIndex={-1}>{id}</h1><Quiet>{text}</Quiet></>;
  }
  const healthy = view.healthy_count ?? 0;
  return (
    <>
      <h1 tabIndex={-1}>{id}</h1>
      <p class="row">
        <Status word={healthy ? "Running" : "Failed"} shown={`${healthy} of ${view.member_count ?? 0} healthy`} />
        <RowActions actions={ACTIONS} item={view} name={id} onDone={reload} />
      </p>
      <div class="grid"><Details view={view} /><Endpoints view={view} /><Excluded view={view} /></div>
    </>
  );
}

const Details = ({ view }: { view: ServiceView }) => (
  <Card title="Details">
    <Facts pairs={[
      ["DNS name", view.dns_name],
      ["Ports", portsOf(view)],
      ["Hosts", (view.spec?.hosts ?? []).join(", ")],
      ["Members", (view.spec?.members ?? []).map((member) => <Selector key={JSON.stringify(member)} member={member} />)],
      ["Updated", <When at={view.updated_at} />],
    ]} />
  </Card>
);

type Member = NonNullable<NonNullable<ServiceView["spec"]>["members"]>[number];

const Selector = ({ member: { set, labels = {}, weight } }: { member: Member }) => (
  <div>
    {set ? <>set <a href={setUrl(set)}>{set}</a></> : <Tags items={Object.entries(labels).map(([name, value]) => `${name}=${value}`)} />}
    {weight ? ` weight ${weight}` : ""}
  </div>
);

const Endpoints = ({ view }: { view: ServiceView }) => (
  <Card title="Endpoints" width="wide">
    <Table caption="Endpoints" heads={["Workload", "Node", "Port", "Address", "Weight", "Healthy since"]} empty="No healthy member: clients cannot reach the service."
      rows={(view.endpoints ?? []).map((one) => [
        <WorkloadLink id={one.workload_id} />, <NodeLink id={one.node_id} />, `${one.port_name}/${one.protocol || "tcp"}`,
        <code>{`${one.host?.includes(":") ? `[${one.host}]` : one.host}:${one.port}`}</code>, String(one.weight ?? 1), <When at={one.healthy_since} />,
      ])} />
  </Card>
);

const Excluded = ({ view: { excluded = [] } }: { view: ServiceView }) => (
  <Card title="Members that get no requests" width="wide">
    <Table caption="Members that get no requests" heads={["Workload", "Node", "Health", "Reason"]} empty="None."
      rows={excluded.map((one) => [<WorkloadLink id={one.workload_id} />, <NodeLink id={one.node_id} />, <Status word={one.health} />, one.reason ?? ""])} />
  </Card>
);

export const service: Page = { title: ({ id }) => id, needs: () => ({}), View };
