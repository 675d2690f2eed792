"""What a Compose document may contain on a node without privileges: one row per attack."""

from pathlib import Path
from typing import cast

import pytest

from persys.core.agent.compose_policy import Json, first_violation, violations
from persys.core.bounded_yaml import load_mapping

RECORDED = Path(__file__).parent / "compose_config"


def refused_in_service(**parts: Json) -> list[str]:
    document: dict[str, Json] = {"services": {"web": {"image": "i", **parts}}}
    return [found.path for found in violations(document)]


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ({"privileged": True}, "privileged"),
        ({"cap_add": ["SYS_ADMIN"]}, "cap_add"),
        ({"devices": ["/dev/sda:/dev/sda"]}, "devices"),
        ({"device_cgroup_rules": ["c *:* rwm"]}, "device_cgroup_rules"),
        ({"gpus": "all"}, "gpus"),
        ({"runtime": "kata"}, "runtime"),
        ({"cgroup_parent": "/system.slice"}, "cgroup_parent"),
        ({"cgroup": "host"}, "cgroup"),
        ({"network_mode": "host"}, "network_mode"),
        ({"network_mode": "container:db"}, "network_mode"),
        ({"network_mode": "somebody_elses_network"}, "network_mode"),
        ({"pid": "host"}, "pid"),
        ({"pid": "container:db"}, "pid"),
        ({"ipc": "host"}, "ipc"),
        ({"uts": "host"}, "uts"),
        ({"userns_mode": "host"}, "userns_mode"),
        ({"security_opt": ["apparmor=unconfined"]}, "security_opt[0]"),
        ({"security_opt": ["no-new-privileges:true", "seccomp=p.json"]}, "security_opt[1]"),
        ({"security_opt": ["no-new-privileges:false"]}, "security_opt[0]"),
        ({"sysctls": {"kernel.core_pattern": "|/x"}}, "sysctls"),
        ({"sysctls": ["vm.overcommit_memory=1"]}, "sysctls"),
        ({"oom_score_adj": -1000}, "oom_score_adj"),
        ({"oom_kill_disable": True}, "oom_kill_disable"),
        ({"isolation": "process"}, "isolation"),
        ({"credential_spec": {"file": "x"}}, "credential_spec"),
        ({"annotations": {"run.oci.hooks": "x"}}, "annotations"),
        ({"blkio_config": {"weight_device": [{"path": "/dev/sda"}]}}, "blkio_config"),
        ({"post_start": [{"command": "x", "privileged": True}]}, "post_start"),
        ({"pre_stop": [{"command": "x"}]}, "pre_stop"),
        ({"provider": {"type": "sh"}}, "provider"),
        ({"develop": {"watch": [{"path": "/"}]}}, "develop"),
        ({"models": ["m"]}, "models"),
        ({"use_api_socket": True}, "use_api_socket"),
        ({"external_links": ["other"]}, "external_links"),
        ({"container_name": "mine"}, "container_name"),
        ({"volumes_from": ["container:db"]}, "volumes_from[0]"),
        ({"env_file": ["/etc/shadow"]}, "env_file"),
        ({"a_key_of_the_future": 1}, "a_key_of_the_future"),
        ({"logging": {"driver": "fluentd", "options": {"fluentd-address": "unix:///x"}}},
         "logging.driver"),
        ({"logging": {"driver": "syslog"}}, "logging.driver"),
        ({"storage_opt": {"dm.basesize": "1"}}, "storage_opt.dm.basesize"),
        ({"deploy": {"resources": {"reservations": {"devices": [{"capabilities": ["gpu"]}]}}}},
         "deploy.resources.reservations.devices"),
        ({"deploy": {"resources": {"limits": {"generic_resources": [1]}}}},
         "deploy.resources.limits.generic_resources"),
        ({"deploy": {"placement": {"constraints": ["a"]}}}, "deploy.placement"),
        ({"volumes": [{"type": "npipe", "source": "a", "target": "b"}]}, "volumes[0].type"),
        ({"volumes": [{"type": "image", "source": "a", "target": "b"}]}, "volumes[0].type"),
        ({"volumes": [{"type": "bind", "source": "/a", "target": "/b",
                       "bind": {"propagation": "rshared"}}]}, "volumes[0].bind.propagation"),
        ({"volumes": [{"type": "bind", "source": "/a", "target": "/b", "bind": {"selinux": "Z"}}]},
         "volumes[0].bind.selinux"),
        ({"volumes": ["/a:/b:rshared"]}, "volumes[0]"),
        ({"volumes": ["/a:/b:ro,Z"]}, "volumes[0]"),
        ({"networks": {"front": {"driver_opts": {"a": "b"}}}}, "networks.front.driver_opts"),
        ({"build": {"context": "/e", "network": "host"}}, "build.network"),
        ({"build": {"context": "/e", "network": "container:db"}}, "build.network"),
        ({"build": {"context": "/e", "privileged": True}}, "build.privileged"),
        ({"build": {"context": "/e", "entitlements": ["network.host"]}}, "build.entitlements"),
        ({"build": {"context": "/e", "secrets": ["s"]}}, "build.secrets"),
        ({"build": {"context": "/e", "ssh": ["default"]}}, "build.ssh"),
        ({"build": {"context": "/e", "cache_to": ["type=local,dest=/etc"]}}, "build.cache_to"),
        ({"build": {"context": "/e", "cache_from": ["a"]}}, "build.cache_from"),
        ({"build": {"context": "/e", "tags": ["nginx"]}}, "build.tags"),
        ({"build": {"context": "/e", "additional_contexts": {"a": "/"}}},
         "build.additional_contexts"),
        ({"build": {"context": "/e", "isolation": "x"}}, "build.isolation"),
    ],
)  # fmt: skip
def test_an_option_outside_the_allow_list_is_refused_with_its_path(
    parts: dict[str, Json], path: str
) -> None:
    assert refused_in_service(**parts) == [f"services.web.{path}"]


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"volumes": {"d": {"driver": "vieux/sshfs"}}}, "volumes.d.driver"),
        *(
            ({"volumes": {"d": {"driver_opts": options}}}, "volumes.d.driver_opts")
            for options in (
                {"type": "overlay", "device": "overlay", "o": "lowerdir=/etc,upperdir=/a"},
                {"type": "proc", "device": "proc"},
                {"type": "none", "o": "bind", "device": "."},
                {"type": "none", "o": "bind", "device": "/etc"},
                {"type": "nfs", "o": "addr=127.0.0.1", "device": ":/"},
                {"type": "ext4", "device": "/dev/sda1"},
                {"type": "tmpfs", "device": "/etc", "o": "bind"},
                {"type": "tmpfs", "device": "tmpfs", "o": "bind"},
                {"type": "tmpfs", "device": "tmpfs", "size": "1"},
                {"o": "bind", "device": "/etc"},
            )
        ),
        ({"volumes": {"d": {"external": True}}}, "volumes.d.external"),
        ({"networks": {"n": {"external": True}}}, "networks.n.external"),
        ({"networks": {"n": {"driver": "macvlan"}}}, "networks.n.driver"),
        ({"networks": {"n": {"driver": "ipvlan"}}}, "networks.n.driver"),
        ({"networks": {"n": {"driver": "host"}}}, "networks.n.driver"),
        ({"networks": {"n": {"driver_opts": {"com.docker.network.bridge.name": "docker0"}}}},
         "networks.n.driver_opts.com.docker.network.bridge.name"),
        ({"networks": {"n": {"driver_opts": {"parent": "eth0"}}}}, "networks.n.driver_opts.parent"),
        ({"networks": {"n": {"ipam": {"driver": "dhcp"}}}}, "networks.n.ipam.driver"),
        ({"secrets": {"s": {"external": True}}}, "secrets.s.external"),
        ({"secrets": {"s": {"driver": "vault"}}}, "secrets.s.driver"),
        ({"configs": {"c": {"template_driver": "golang"}}}, "configs.c.template_driver"),
        ({"include": ["/etc/other.yaml"]}, "include"),
        ({"models": {"m": {"model": "x"}}}, "models"),
        ({"services": {"x-web": {"image": "i", "privileged": True}}},
         "services.x-web.privileged"),
    ],
)  # fmt: skip
def test_shared_parts_are_refused_by_their_path(document: dict[str, Json], path: str) -> None:
    assert [found.path for found in violations(document)] == [path]


@pytest.mark.parametrize(
    "parts",
    [
        {"privileged": False, "cap_add": [], "devices": None, "gpus": "", "annotations": {}},
        {"x-anything": {"privileged": True}},
        {"extra_hosts": ["a=1.2.3.4"], "dns": ["1.1.1.1"], "hostname": "h"},
        {"network_mode": "service:db", "pid": "service:db", "ipc": "shareable"},
        {"network_mode": "none"},
        {"security_opt": ["no-new-privileges:true"]},
        {"sysctls": {"net.core.somaxconn": "5", "kernel.shmmax": "1"}},
        {"logging": {"driver": "json-file", "options": {"max-size": "1m"}}},
        {"volumes": ["data:/data:rw", "/a:/b:ro", "/anonymous"]},
        {"volumes": [{"type": "tmpfs", "target": "/t", "tmpfs": {"size": "100"}}]},
        {"build": {"context": "/e", "dockerfile": "D", "args": {"A": "b"}, "network": "none"}},
        {"oom_score_adj": 500},
    ],
)
def test_options_without_access_to_the_node_are_allowed(parts: dict[str, Json]) -> None:
    assert refused_in_service(**parts) == []


@pytest.mark.parametrize("name", ["v1", "v2"])
def test_the_output_of_both_compose_versions_for_a_usual_stack_is_allowed(name: str) -> None:
    document = load_mapping((RECORDED / f"{name}.yaml").read_text())

    assert violations(cast("dict[str, Json]", document)) == []


def test_tmpfs_volumes_are_allowed() -> None:
    options: Json = {"type": "tmpfs", "device": "tmpfs", "o": "size=10m,uid=1000,mode=0700"}

    assert violations({"volumes": {"d": {"driver": "local", "driver_opts": options}}}) == []


def test_keys_that_compose_resolves_need_no_privilege_before_it_has() -> None:
    assert first_violation({"env_file": ".env", "extends": {"service": "a"}}, "services.a") is None
    found = first_violation({"image": "i", "post_start": [{"command": "x"}]}, "services.a")
    assert found is not None
    assert found.path == "services.a.post_start"
