// The identity of the user, and sign-in with a token.

import { useState } from "preact/hooks";
import { token } from "../../api/session";
import type { Page } from "../../app/page";
import { Card, Facts } from "../../components/card";
import { When } from "../../components/when";
import { useAppState, type State } from "../../state/store";
import { restart } from "../../state/sync";

function View() {
  const state = useAppState();
  const [text, setText] = useState("");
  const signIn = (event: Event) => {
    event.preventDefault();
    token.set(text.trim());
    setText("");
    restart();
  };
  const signOut = () => { token.set(""); restart(); };
  return (
    <>
      <h1 tabIndex={-1}>Access</h1>
      <div class="grid">
        <Card title="Identity"><Identity state={state} /></Card>
        <Card title="Sign in with a token">
          <p>Only if your browser has no client certificate. The token is stored until this tab is closed.</p>
          <form onSubmit={signIn}>
            <p>
              <label for="token">Token </label>
              <input id="token" type="password" autocomplete="off" required value={text} onInput={(event) => setText(event.currentTarget.value)} />
            </p>
            <p class="row">
              <button type="submit" class="primary">Sign in</button>
              {token.get() && <button type="button" onClick={signOut}>Sign out</button>}
            </p>
          </form>
        </Card>
      </div>
    </>
  );
}

function Identity({ state: { identity, link } }: { state: State }) {
  if (!identity) return <p>{link.state === "denied" ? `Access denied: ${link.detail}` : "Loading …"}</p>;
  if (!identity.role) return <p>Unauthenticated: the cluster runs with -insecure, so everyone has all permissions.</p>;
  return (
    <Facts pairs={[
      ["Name", identity.name],
      ["Role", identity.role],
      ["Permissions", (identity.deeds ?? []).join(", ")],
      ["Authenticated by", identity.token_id ? `token ${identity.token_id}` : "certificate"],
      ["Prefix", identity.prefix],
      ["Expires", identity.expires_at && <When at={identity.expires_at} />],
    ]} />
  );
}

export const access: Page = { title: () => "Access", needs: () => ({}), View };
