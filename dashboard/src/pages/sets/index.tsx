// All sets, with the state of their rollouts.

import { pages } from "../../api/client";
import type { SetView } from "../../api/schema";
import type { Page } from "../../app/page";
import { setUrl } from "../../components/links";
import { Quiet } from "../../components/card";
import { Status } from "../../components/status";
import { Table } from "../../components/table";
import { When } from "../../components/when";
import { useReading } from "../../state/reading";
import { emptyText, useAppState } from "../../state/store";

const READ_EVERY_MS = 5000;

function View() {
  const { events } = useAppState();
  const { value, problem } = useReading(() => pages<SetView>("ListSets", "sets"), events.at(-1)?.sequence, READ_EVERY_MS);
  return (
    <>
      <h1 tabIndex={-1}>Sets</h1>
      <p class="quiet">A set runs several members from one template. Apply a spec with <code>replicas</code> with persysctl to create one.</p>
      {value === null
        ? <Quiet>{problem && problem.status !== 401 ? problem.message : emptyText(false)}</Quiet>
        : <Table caption="Sets" heads={["Set", "Phase", "Healthy", "Updated members", "Type", "Changed", "Reason"]} empty="No sets." rows={value.map(row)} />}
    </>
  );
}

const row = (view: SetView) => {
  const id = view.spec?.set_id ?? "";
  return [
    <a href={setUrl(id)}>{id}</a>, <Status word={view.phase} />,
    `${view.healthy_count ?? 0} of ${view.member_count_wanted ?? 0}`, `${view.updated_count ?? 0} of ${view.member_count ?? 0}`,
    view.type ?? "", <When at={view.updated_at} />, view.reason ?? "",
  ];
};

export const sets: Page = { title: () => "Sets", needs: () => ({}), View };
