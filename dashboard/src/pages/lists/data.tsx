// Volumes and images on the nodes, and the names of secrets.

import { call } from "../../api/client";
import type { ImageView, SecretView, VolumeView } from "../../api/schema";
import { ActionButton } from "../../components/action_button";
import { performConfirmed } from "../../components/dialog";
import { NodeLinks, WorkloadLinks } from "../../components/links";
import { listPage } from "../../components/list_page";
import { When } from "../../components/when";
import { bytes } from "../../format";
import { isAllowed } from "../../state/store";

const volumeName = ({ workload_id: workload, name }: VolumeView) => `${workload}/${name}`;

export const volumes = listPage<VolumeView>({
  title: "Volumes",
  intro: <>Volumes with data on the nodes. A volume with the policy Retain stays when its workload is deleted.</>,
  permission: "read",
  read: async () => {
    const found = await call("ListVolumes", {});
    return { items: found.volumes ?? [], problems: found.problems };
  },
  nameOf: volumeName,
  textOf: (volume) => [volume.name, volume.workload_id, volume.node_id, volume.state, volume.pool, volume.driver].join(" "),
  columns: [
    { head: "Volume", cell: ({ name }) => name },
    { head: "Workload", cell: ({ workload_id: id }) => <WorkloadLinks ids={id ? [id] : []} /> },
    { head: "Node", cell: ({ node_id: id }) => <NodeLinks ids={id ? [id] : []} /> },
    { head: "State", cell: ({ state }) => state ?? "" },
    { head: "Used", cell: ({ used_bytes: used }) => (used ? bytes(used) : "–") },
    { head: "Size", cell: ({ size_bytes: size }) => (Number(size ?? 0) ? bytes(size) : "–") },
    { head: "Policy", cell: ({ retain_policy: policy }) => policy || "–" },
    { head: "Pool", cell: ({ pool, driver }) => pool || driver || "–" },
  ],
  actions: [{
    verb: "Delete", permission: "data",
    question: (volume) => ({
      title: `Delete the volume ${volumeName(volume)}?`, verb: "Delete", danger: true,
      text: `Its data on ${volume.node_id} is deleted. This cannot be undone. A volume that is in use is refused.`,
    }),
    work: ({ node_id, workload_id, name }) => call("DeleteVolume", { node_id: node_id ?? "", workload_id: workload_id ?? "", name: name ?? "" }),
    done: (volume) => `${volumeName(volume)} is deleted.`,
  }],
  empty: "No volumes.",
});

export const images = listPage<ImageView>({
  title: "Images",
  intro: <>Images of virtual machines on the nodes. Add one with <code>persysctl image add</code>.</>,
  permission: "read",
  read: async () => {
    const found = await call("ListImages", {});
    return { items: found.images ?? [], problems: found.problems };
  },
  nameOf: ({ name }) => name ?? "",
  textOf: (image) => [image.name, image.sha256, image.format, ...(image.node_ids ?? []), ...(image.used_by ?? [])].join(" "),
  columns: [
    { head: "Image", cell: ({ name }) => name },
    { head: "Format", cell: ({ format }) => format ?? "" },
    { head: "Size", cell: ({ size_bytes: size }) => bytes(size) },
    { head: "Virtual size", cell: ({ virtual_size_bytes: size }) => bytes(size) },
    { head: "Digest", cell: ({ sha256 = "" }) => <code title={sha256}>{sha256.slice(0, 12)}</code> },
    { head: "Nodes", cell: ({ node_ids: ids }) => <NodeLinks ids={ids} /> },
    { head: "Used by", cell: ({ used_by: ids }) => <WorkloadLinks ids={ids} /> },
    { head: "Added", cell: ({ added_at: at }) => <When at={at} /> },
  ],
  actions: [{
    verb: "Remove", permission: "data",
    question: ({ name, node_ids: ids = [] }) => ({
      title: `Remove the image ${name}?`, verb: "Remove", danger: true, text: `It is removed from ${ids.join(", ")}. An image that is in use is refused.`,
    }),
    work: ({ name }) => call("RemoveImage", { name: name ?? "" }),
    done: ({ name }) => `${name} is removed.`,
  }],
  empty: "No images.",
});

function PutSecret({ onDone }: { onDone: () => void }) {
  if (!isAllowed("secrets")) return null;
  const put = async () => {
    const succeeded = await performConfirmed({
      title: "Put a secret", verb: "Put", text: "A secret that exists gets a new version. Its value cannot be read back.",
      fields: (
        <>
          <p><label for="secret-name">Name </label><input id="secret-name" name="name" required maxLength={128} autocomplete="off" /></p>
          <p><label for="secret-value">Value</label><textarea id="secret-value" name="value" required rows={4} autocomplete="off" spellcheck={false} /></p>
        </>
      ),
    }, ({ name, value }) => call("PutSecret", { name: name ?? "", value: base64(value ?? "") }), "The secret is stored.");
    if (succeeded) onDone();
  };
  return <p><ActionButton permission="secrets" class="primary" onClick={() => { void put(); }}>Put a secret …</ActionButton></p>;
}

/** The UTF-8 bytes of a text, as the API expects bytes. A form sends line ends as CRLF. */
export const base64 = (text: string): string =>
  btoa(Array.from(new TextEncoder().encode(text.replaceAll("\r\n", "\n")), (byte) => String.fromCharCode(byte)).join(""));

export const secrets = listPage<SecretView>({
  title: "Secrets",
  intro: <>Names only: values cannot be read back. A spec refers to a secret as <code>secret://name</code>.</>,
  permission: "read",
  read: async () => ({ items: (await call("ListSecrets", {})).secrets ?? [] }),
  nameOf: ({ name }) => name ?? "",
  textOf: (secret) => [secret.name, secret.updated_by, ...(secret.used_by ?? [])].join(" "),
  columns: [
    { head: "Secret", cell: ({ name }) => name },
    { head: "Version", cell: ({ version }) => String(version ?? "") },
    { head: "Used by", cell: ({ used_by: ids }) => <WorkloadLinks ids={ids} /> },
    { head: "Updated", cell: ({ updated_at: at }) => <When at={at} /> },
    { head: "By", cell: ({ updated_by: who }) => who || "–" },
  ],
  actions: [{
    verb: "Delete", permission: "secrets",
    question: ({ name, used_by: ids = [] }) => ({
      title: `Delete the secret ${name}?`, verb: "Delete", danger: true,
      text: ids.length ? `It is used by ${ids.join(", ")}.` : "No workload uses it. This cannot be undone.",
    }),
    work: ({ name }) => call("DeleteSecret", { name: name ?? "" }),
    done: ({ name }) => `${name} is deleted.`,
  }],
  empty: "No secrets.",
  Create: PutSecret,
});
