// The volumes and images on a node. The node itself is asked, so they are read once and on request.

import { call } from "../../api/client";
import { Card, Quiet } from "../../components/card";
import { WorkloadLink, WorkloadLinks } from "../../components/links";
import { Table } from "../../components/table";
import { bytes } from "../../format";
import { useReading } from "../../state/reading";

export function Volumes({ id }: { id: string }) {
  const { value, problem } = useReading(() => call("ListVolumes", { node_id: id }));
  const unread = problem?.message ?? value?.problems?.[0]?.problem;
  return (
    <Card title="Volumes" width="two">
      {unread && <p class="callout">{unread}</p>}
      {!value && !problem && <Quiet>Loading …</Quiet>}
      {value && (
        <Table caption="Volumes of the node" heads={["Volume", "Workload", "State", "Used", "Size", "Pool"]} empty="No volumes."
          rows={(value.volumes ?? []).map((volume) => [
            volume.name, <WorkloadLink id={volume.workload_id} />, volume.state ?? "", bytes(volume.used_bytes),
            Number(volume.size_bytes ?? 0) ? bytes(volume.size_bytes) : "–", volume.pool || volume.driver || "–",
          ])} />
      )}
    </Card>
  );
}

export function Images({ id }: { id: string }) {
  const { value, problem } = useReading(() => call("ListImages", { node_id: id }));
  const unread = problem?.message ?? value?.problems?.[0]?.problem;
  return (
    <Card title="Images of virtual machines">
      {unread && <p class="callout">{unread}</p>}
      {!value && !problem && <Quiet>Loading …</Quiet>}
      {value && (
        <Table caption="Images of the node" heads={["Image", "Size", "Used by"]} empty="No images."
          rows={(value.images ?? []).map((image) => [image.name, bytes(image.size_bytes), <WorkloadLinks ids={image.used_by} />])} />
      )}
    </Card>
  );
}
