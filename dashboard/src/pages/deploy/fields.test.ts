import { parse } from "yaml";
import { expect, test } from "vitest";
import { FIELDS, initialValues, missingOf, nameOf, specOf, stackOf, type Kind } from "./fields";

test("a container form becomes a spec file without its empty fields", () => {
  const values = { ...initialValues("container"), id: "web", image: "nginx", ports: "8080:80\n\n 81 ", env: "A=b=c\nB=", volumes: "data:/srv" };
  expect(parse(specOf("container", values).text)).toEqual({
    id: "web",
    container: {
      image: "nginx", ports: ["8080:80", "81"], env: { A: "b=c", B: "" }, managed_volumes: [{ name: "data", mount_path: "/srv" }], restart_policy: "unless-stopped",
    },
    resources: { cpu_millicores: 100, memory_mb: 128 },
  });
});

test("a virtual machine has its disk, network and login", () => {
  const values = { ...initialValues("vm"), id: "m", image: "debian-12", disk: "20", user: "admin", keys: "ssh-ed25519 A\nssh-rsa B" };
  expect(parse(specOf("vm", values).text)["vm"]).toEqual({
    os_image: "debian-12", vcpus: 1, memory_mb: 1024, disks: [{ mount_point: "vda", size_gb: 20 }],
    networks: [{ bridge: "default", dhcp: true }], login: { user: "admin", ssh_keys: ["ssh-ed25519 A", "ssh-rsa B"] },
  });
});

test("an invalid value is an error of its field", () => {
  const { errors } = specOf("container", { env: "novalue", volumes: "data", memory: "1.5" });
  expect(errors["env"]).toBe("invalid variable 'novalue': expected NAME=VALUE");
  expect(Object.keys(errors)).toEqual(["env", "volumes", "memory"]);
});

test("text of a user cannot add fields to the spec file", () => {
  const image = "x\n  privileged: true\nid: other";
  expect(parse(specOf("container", { id: "a", image }).text)).toEqual({ id: "a", container: { image } });
  expect(parse(stackOf("a", "services: {}\n---\nid: b"))).toEqual({ id: "a", compose: { inline_yaml: "services: {}\n---\nid: b" } });
});

test("a name from a file is valid", () => {
  expect(nameOf("My Shop.docker-compose.YML")).toBe("my-shop-docker-compose");
  expect(nameOf("<b>.yaml")).toBe("b");
  expect(nameOf("---.yaml")).toBe("stack");
});

test("required fields are named until they have a value", () => {
  expect(missingOf("git", initialValues("git"))).toEqual(["Name", "Repository"]);
});

test.each(Object.keys(FIELDS) as Kind[])("the fields of %s have different names and paths", (kind) => {
  expect(new Set(FIELDS[kind].map((field) => field.name)).size).toBe(FIELDS[kind].length);
  expect(new Set(FIELDS[kind].map((field) => field.path.join("."))).size).toBe(FIELDS[kind].length);
});
