// How to add a node, for those who may create a join token.
//
// The certificate authority creates join tokens, not the API: the commands are shown, with the address of the scheduler.

import { useAppState, isAllowed } from "../../state/store";

const NODE = "NODE", TOKEN = "TOKEN", SCHEDULER = "SCHEDULER:8085";

export function Join() {
  const { mode } = useAppState();
  if (!isAllowed("tokens")) return null;
  return (
    <details>
      <summary>Add a node</summary>
      <p>Create a join token, which is valid once and for an hour. {NODE} is the name of the new node.</p>
      <pre class="log" tabIndex={0} aria-label="Command that creates a token">{`persysctl token create --role agent --node ${NODE} --ttl 1h`}</pre>
      <p>Then, on the new node, with the token that was printed:</p>
      <pre class="log" tabIndex={0} aria-label="Commands on the new node">{joinCommands(mode?.leader_endpoint)}</pre>
    </details>
  );
}

export const joinCommands = (endpoint: string | undefined): string =>
  `persys-agent join ${endpoint || SCHEDULER} ${TOKEN}\nsystemctl enable --now persys-agent`;
