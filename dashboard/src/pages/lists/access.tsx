// Access tokens and the audit log of the gateway.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Operations, TokenView } from "../../api/schema";
import { ActionButton } from "../../components/action_button";
import { performConfirmed } from "../../components/dialog";
import { listPage } from "../../components/list_page";
import { When } from "../../components/when";
import { dateTime } from "../../format";
import { isAllowed } from "../../state/store";

const ROLES = ["viewer", "operator", "admin"];
const DAY_SECONDS = 86_400, DAYS_USUAL = 30;
const AUDIT_SHOWN = 500;

const TokenFields = () => (
  <>
    <p><label for="token-name">Name </label><input id="token-name" name="name" required maxLength={100} autocomplete="off" /></p>
    <p>
      <label for="token-role">Role </label>
      <select id="token-role" name="role">{ROLES.map((role) => <option key={role} value={role}>{role}</option>)}</select>
    </p>
    <p><label for="token-days">Valid for days </label><input id="token-days" name="days" type="number" min="1" max="365" required defaultValue={String(DAYS_USUAL)} /></p>
    <p><label for="token-prefix">Only workloads whose names begin with (empty: all) </label><input id="token-prefix" name="prefix" maxLength={63} autocomplete="off" /></p>
  </>
);

/** The secret of a new token is shown once; it is not stored anywhere. */
function CreateToken({ onDone }: { onDone: () => void }) {
  const [secret, setSecret] = useState("");
  if (!isAllowed("tokens")) return null;
  const create = async () => {
    const succeeded = await performConfirmed(
      { title: "Create a token", verb: "Create", text: "A person or program with the token has its role.", fields: <TokenFields /> },
      async ({ name, role, days, prefix }) => {
        const created = await call("CreateToken", { name: name ?? "", role: role ?? "", prefix: prefix ?? "", ttl_seconds: String(DAY_SECONDS * Number(days)) });
        setSecret(created.secret ?? "");
      }, "The token is created.");
    if (succeeded) onDone();
  };
  return (
    <>
      <p><ActionButton permission="tokens" class="primary" onClick={() => { void create(); }}>Create a token …</ActionButton></p>
      {secret && (
        <div class="callout" id="new-token">
          <p>Copy the token now: it is not shown again.</p>
          <p><code>{secret}</code></p>
          <button type="button" onClick={() => setSecret("")}>Hide</button>
        </div>
      )}
    </>
  );
}

export const tokens = listPage<TokenView>({
  title: "Tokens",
  intro: <>Access tokens of people and programs. A revoked token is refused at once.</>,
  permission: "tokens",
  read: async () => ({ items: (await call("ListTokens", {})).tokens ?? [] }),
  nameOf: ({ name, token_id: id }) => name || id || "",
  textOf: (token) => [token.token_id, token.name, token.role, token.prefix, token.created_by].join(" "),
  columns: [
    { head: "Token", cell: ({ token_id: id }) => <code>{id}</code> },
    { head: "Name", cell: ({ name }) => name ?? "" },
    { head: "Role", cell: ({ role, deeds = [] }) => role || deeds.join(", ") },
    { head: "Prefix", cell: ({ prefix }) => prefix || "–" },
    { head: "Created", cell: ({ created_at: at }) => <When at={at} /> },
    { head: "By", cell: ({ created_by: who }) => who || "–" },
    { head: "Expires", cell: ({ expires_at: at }) => <When at={at} /> },
  ],
  actions: [{
    verb: "Revoke", permission: "tokens",
    question: ({ name, token_id: id }) => ({
      title: `Revoke the token ${name || id}?`, verb: "Revoke", danger: true, text: "Its holder loses access at once. This cannot be undone.",
    }),
    work: ({ token_id: id }) => call("RevokeToken", { token_id: id ?? "" }),
    done: ({ name, token_id: id }) => `${name || id} is revoked.`,
  }],
  empty: "No tokens.",
  Create: CreateToken,
});

type AuditEntry = NonNullable<Operations["ListAudit"]["response"]["entries"]>[number];

export const audit = listPage<AuditEntry>({
  title: "Audit",
  intro: <>The newest {AUDIT_SHOWN} changes that were requested through this gateway, also those that were refused.</>,
  permission: "tokens",
  read: async () => ({ items: (await call("ListAudit", { limit: AUDIT_SHOWN })).entries ?? [] }),
  nameOf: ({ number }) => number ?? "",
  textOf: (entry) => [entry.who, entry.address, entry.action, entry.cluster, entry.target, entry.status, entry.request_id].join(" "),
  columns: [
    { head: "Time", cell: ({ at }) => dateTime(at) },
    { head: "Identity", cell: ({ who }) => who },
    { head: "Action", cell: ({ action }) => action },
    { head: "Target", cell: ({ target }) => target || "–" },
    { head: "Status", cell: ({ status }) => String(status ?? "") },
    { head: "Address", cell: ({ address }) => address || "–" },
    { head: "Cluster", cell: ({ cluster }) => cluster || "–" },
  ],
  empty: "No changes yet.",
});
