// Links to the pages that are not in the navigation. Those without permission are left out.

import type { Page } from "../../app/page";
import { Card, Quiet } from "../../components/card";
import { emptyText, isAllowed, useAppState } from "../../state/store";

interface Entry {
  section: string;
  text: string;
  about: string;
  permission?: string;
}

const GROUPS: [title: string, entries: Entry[]][] = [
  ["Network and capacity", [
    { section: "services", text: "Services", about: "names with healthy members behind them" },
    { section: "nodepools", text: "Node pools", about: "machines that a provider creates on demand" },
    { section: "federation", text: "Federation", about: "clusters that take workloads of this one" },
  ]],
  ["Data", [
    { section: "volumes", text: "Volumes", about: "data of workloads on the nodes" },
    { section: "images", text: "Images", about: "images of virtual machines" },
    { section: "secrets", text: "Secrets", about: "names, versions, and who uses them" },
  ]],
  ["Repair", [
    { section: "drifts", text: "Drift", about: "differences between records and nodes" },
    { section: "orphans", text: "Orphans", about: "workloads on nodes that are not assigned to them" },
    { section: "suggestions", text: "Suggestions", about: "changes that wait for a decision" },
  ]],
  ["Access", [
    { section: "tokens", text: "Tokens", about: "create and revoke", permission: "tokens" },
    { section: "audit", text: "Audit", about: "who changed what", permission: "tokens" },
  ]],
];

function View() {
  const { identity } = useAppState();
  const offered = (entries: Entry[]) => entries.filter(({ permission = "read" }) => isAllowed(permission));
  return (
    <>
      <h1 tabIndex={-1}>More</h1>
      {!identity && <Quiet>{emptyText(false)}</Quiet>}
      <div class="grid">
        {GROUPS.filter(([, entries]) => offered(entries).length > 0).map(([title, entries]) => (
          <Card title={title} key={title}>
            <ul>{offered(entries).map(({ section, text, about }) => <li key={section}><a href={`#/${section}`}>{text}</a>: {about}</li>)}</ul>
          </Card>
        ))}
      </div>
    </>
  );
}

export const more: Page = { title: () => "More", needs: () => ({}), View };
