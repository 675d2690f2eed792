"""Valid documents that fuzzers mutate: the examples, output of Compose, specs with every field."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]

FULL_STACK: dict[str, Any] = {
    "services": {
        "web": {
            "image": "nginx:1.27",
            "command": ["nginx", "-g", "daemon off;"],
            "ports": [
                "8080:80",
                "127.0.0.1:9000-9001:90-91/udp",
                {"target": 81, "published": "8081"},
            ],
            "environment": {"A": "${A:-b}", "N": 3},
            "volumes": ["data:/data:ro", {"type": "bind", "source": "/srv/x", "target": "/x"}],
            "restart": "on-failure:3",
            "deploy": {
                "replicas": 2,
                "resources": {"limits": {"cpus": "0.5", "memory": "64M"}},
                "restart_policy": {"condition": "on-failure"},
            },
            "depends_on": {"db": {"condition": "service_healthy"}},
            "profiles": ["p"],
            "labels": {"a": "b"},
            "healthcheck": {"test": ["CMD", "true"], "interval": "5s"},
            "logging": {"driver": "json-file", "options": {"max-size": "1m"}},
            "ulimits": {"nofile": {"soft": 10, "hard": 20}},
            "sysctls": {"net.core.somaxconn": "5"},
            "security_opt": ["no-new-privileges:true"],
            "networks": {"front": {"aliases": ["w"]}},
            "network_mode": "bridge",
            "oom_score_adj": 10,
            "pids_limit": 50,
            "tmpfs": "/run",
        },
        "db": {
            "image": "db",
            "scale": 1,
            "cpus": 0.5,
            "mem_limit": "64m",
            "ipc": "service:web",
        },
    },
    "networks": {"front": {"driver": "bridge", "ipam": {"config": [{"subnet": "10.7.0.0/24"}]}}},
    "volumes": {
        "data": None,
        "mem": {"driver_opts": {"type": "tmpfs", "device": "tmpfs", "o": "size=1m,nosuid"}},
    },
    "secrets": {"s": {"environment": "A"}},
    "configs": {"c": {"content": "x"}},
    "x-more": {"a": 1},
}

# Not valid as a whole: mutations copy parts of it into valid documents.
REFUSED_PARTS: dict[str, Any] = {
    "include": ["other.yaml"],
    "services": {
        "bad": {
            "build": {"context": "/", "network": "host", "ssh": ["default"], "privileged": True},
            "annotations": {"run.oci.hooks": "x"},
            "blkio_config": {"weight_device": [{"path": "/dev/sda"}]},
            "cap_add": ["SYS_ADMIN"],
            "cgroup": "host",
            "cgroup_parent": "/system.slice",
            "container_name": "mine",
            "credential_spec": {"file": "x"},
            "deploy": {"resources": {"reservations": {"devices": [{"capabilities": ["gpu"]}]}}},
            "develop": {"watch": [{"path": "/"}]},
            "device_cgroup_rules": ["c *:* rwm"],
            "devices": ["/dev/sda:/dev/sda"],
            "env_file": ["/etc/shadow"],
            "extends": {"file": "/etc/x.yaml", "service": "a"},
            "external_links": ["other"],
            "gpus": "all",
            "ipc": "host",
            "isolation": "process",
            "logging": {"driver": "fluentd", "options": {"fluentd-address": "unix:///x"}},
            "models": ["m"],
            "network_mode": "container:db",
            "oom_kill_disable": True,
            "oom_score_adj": -1000,
            "pid": "host",
            "post_start": [{"command": "x", "privileged": True}],
            "pre_stop": [{"command": "x"}],
            "privileged": True,
            "provider": {"type": "sh"},
            "runtime": "kata",
            "security_opt": ["apparmor=unconfined", "seccomp=unconfined"],
            "storage_opt": {"dm.basesize": "1"},
            "sysctls": {"kernel.core_pattern": "|/x"},
            "use_api_socket": True,
            "userns_mode": "host",
            "uts": "host",
            "volumes": [
                "/a:/b:rshared",
                {"type": "bind", "source": "/", "target": "/b", "bind": {"propagation": "rshared"}},
                {"type": "image", "source": "a", "target": "/b"},
            ],
            "volumes_from": ["container:db"],
        }
    },
    "networks": {
        "n": {"driver": "macvlan", "external": True, "driver_opts": {"parent": "eth0"}},
        "m": {"driver_opts": {"com.docker.network.bridge.name": "docker0"}},
    },
    "volumes": {
        "d": {"driver": "vieux/sshfs", "external": True, "name": "other"},
        "o": {"driver_opts": {"type": "overlay", "device": "overlay", "o": "lowerdir=/etc"}},
        "p": {"driver_opts": {"type": "none", "device": "/etc", "o": "bind"}},
    },
    "secrets": {"s": {"file": "/etc/shadow", "driver": "x", "template_driver": "y"}},
    "configs": {"c": {"file": "/etc/shadow", "external": True}},
}

FULL_SPECS: tuple[dict[str, Any], ...] = (
    {
        "id": "full-container",
        "type": "container",
        "desired_state": "Running",
        "revision_id": "r7",
        "resources": {"cpu_millicores": 500, "memory_mb": 256, "disk_gb": 1},
        "metadata": {"team": "shop"},
        "stop_after": "5m",
        "placement": {
            "constraints": ["disk in (ssd, nvme)", "node.memory_mb > 512", "node.id != n9"],
            "tolerations": ["team=shop"],
            "group": "shop",
            "anti_affinity": "required",
            "spread_over": ["zone"],
            "priority": 80,
            "strategy": "binpack",
        },
        "container": {
            "image": "nginx",
            "command": ["nginx", "-g"],
            "args": ["-t"],
            "env": {"A": "b", "S": "secret://db"},
            "volumes": [{"host_path": "/srv/x", "container_path": "/x", "read_only": True}],
            "managed_volumes": [
                {"name": "data", "size_gb": 2, "mount_path": "/data", "retain_policy": "Retain"}
            ],
            "ports": ["8080:80/udp", {"container_port": 81, "host_port": 8081, "protocol": "tcp"}],
            "restart_policy": "on-failure:3",
            "privileged": False,
            "image_pull_policy": "Always",
            "labels": {"a": "b"},
            "image_credential": "team-registry",
            "health_check": {"type": "http", "port": 80, "path": "/", "interval_seconds": 5},
            "files": [{"path": "/etc/app.conf", "content": "x", "mode": "0444"}],
            "init": True,
        },
    },
    {
        "id": "full-stack",
        "compose": {
            "env": {"A": "b", "COMPOSE_PROFILES": "p"},
            "inline_yaml": yaml.safe_dump(FULL_STACK),
            "volume_policy": "Delete",
        },
    },
    {
        "id": "git-stack",
        "compose": {
            "git_repo": "https://example.org/shop.git",
            "git_ref": "main",
            "git_path": "deploy",
            "git_credential": "team-git",
        },
    },
    {
        "workload_id": "full-machine",
        "spec": {
            "type": "vm",
            "vm": {
                "vcpus": 2,
                "memory_mb": 512,
                "os_image": "debian-12",
                "disks": [{"pool_name": "fast", "size_gb": 10, "mount_point": "vda"}],
                "login": {
                    "user": "ada",
                    "ssh_keys": ["ssh-ed25519 " + "A" * 68],
                    "password_hash": "$6$ab$" + "c" * 86,
                },
                "networks": [
                    {"bridge": "default", "static_ip": "10.0.0.5/24", "gateway": "10.0.0.1",
                     "mac_address": "52:54:00:00:00:01", "nameservers": ["10.0.0.2"]},
                    {"bridge": "default", "dhcp": True},
                ],
                "cloud_init": {
                    "user_data": "#cloud-config\npackages: [nginx]\n",
                    "meta_data": "local-hostname: db1\n",
                    "network_config": "version: 2\nethernets: {eth0: {dhcp4: true}}\n",
                    "vendor_data": "#cloud-config\n{}\n",
                },
                "stop_grace_seconds": 30,
            },
        },
    },
    {"id": "stopped", "desired_state": "Stopped"},
)  # fmt: skip

# With every key of sets and jobs.
FULL_OWNERS: tuple[dict[str, Any], ...] = (
    {
        "id": "full-set",
        "replicas": 3,
        "update": {
            "max_parallel": 2,
            "order": "start-first",
            "min_healthy": "1s",
            "healthy_deadline": "60s",
            "on_failure": "rollback",
            "canary": 1,
            "bake": "1m",
        },
        "scale": {
            "min": 2,
            "max": 10,
            "cpu": "70%",
            "memory": "80%",
            "prometheus": {"url": "http://p:9090", "query": "sum(up)", "target": 1.5},
            "cooldown": "30s",
        },
        "resources": {"cpu_millicores": 100, "memory_mb": 64},
        "container": {"image": "nginx"},
    },
    {"id": "every", "kind": "set", "every": "node", "container": {"image": "nginx"}},
    {
        "id": "full-job",
        "job": {
            "completions": 9,
            "parallelism": 2,
            "retries": 1,
            "deadline": "10m",
            "keep": 5,
            "fail_on": [3, 4],
        },
        "schedule": {
            "cron": "0 3 * * *",
            "timezone": "Europe/Berlin",
            "overlap": "replace",
            "start_within": "1h",
        },
        "container": {"image": "nginx"},
    },
)

CLOUD_INIT = {
    "user_data": "#cloud-config\npackages: [nginx]\nwrite_files:\n- {path: /x, content: y}\n",
    "meta_data": "instance-id: i-1\nlocal-hostname: db1\npublic-keys: [ssh-ed25519 AAAA]\n",
    "network_config": (
        "version: 2\nethernets:\n  eth0:\n    match: {macaddress: '52:54:00:00:00:01'}\n"
        "    addresses: [10.0.0.5/24]\n    nameservers: {addresses: [10.0.0.2]}\n"
    ),
    "vendor_data": (
        'Content-Type: multipart/mixed; boundary="b"\nMIME-Version: 1.0\n\n'
        '--b\nContent-Type: text/cloud-config; charset="utf-8"\nContent-Transfer-Encoding: base64\n\n'
        "I2Nsb3VkLWNvbmZpZwo=\n--b--\n"
    ),
}


@cache
def spec_documents() -> tuple[Any, ...]:
    """Workloads, sets and jobs, single and in lists, as in spec files."""
    texts = [path.read_text("utf-8") for path in sorted((ROOT / "examples").rglob("*.yaml"))]
    found = (one for text in texts for one in yaml.safe_load_all(text) if one)
    return (*(_with_written_modes(one) for one in found), *FULL_SPECS, *FULL_OWNERS)


@cache
def compose_documents() -> tuple[Any, ...]:
    """As users write them, and as Compose v1 and v2 print them."""
    printed = sorted((ROOT / "tests/unit/core/agent/compose_config").glob("*.yaml"))
    in_examples = [
        yaml.safe_load(one["compose"]["inline_yaml"])
        for document in spec_documents()
        for one in (document if isinstance(document, list) else [document])
        if "inline_yaml" in one.get("compose", {})
    ]
    found = [yaml.safe_load(path.read_text("utf-8")) for path in printed]
    return (*found, *in_examples, FULL_STACK)


def _with_written_modes(document: Any) -> Any:
    """Permissions as text: the YAML loader would read 0400 as another number."""
    if isinstance(document, list):
        return [_with_written_modes(part) for part in document]
    if not isinstance(document, dict):
        return document
    return {
        key: f"0{part:o}" if key == "mode" and isinstance(part, int) else _with_written_modes(part)
        for key, part in document.items()
    }


# Written from the Compose specification, independent of the list that the agent has.
_HOST_KEYS = frozenset(REFUSED_PARTS["services"]["bad"]) - {
    "build", "cgroup", "deploy", "ipc", "logging", "network_mode", "oom_score_adj", "pid",
    "security_opt", "storage_opt", "sysctls", "volumes", "volumes_from",
}  # fmt: skip
_OWN_SPACES = ("", "none", "private", "shareable", "bridge", "default")


def check_allowed(document: Any) -> None:
    """Nothing in an accepted document reaches beyond the containers, networks and volumes of the stack."""
    for name, service in (document.get("services") or {}).items():
        for key in _HOST_KEYS:
            assert not service.get(key), f"services.{name}.{key}: {service[key]!r}"
        for key in ("cgroup", "ipc", "network_mode", "pid"):
            value = str(service.get(key) or "")
            assert value in _OWN_SPACES or value.startswith("service:"), f"{name}.{key}: {value!r}"
        for option in _items(service.get("security_opt")):
            assert not option or str(option).startswith("no-new-privileges"), f"{name}: {option!r}"
        for mount in _items(service.get("volumes")):
            _check_mount(name, mount)
    for name, network in (document.get("networks") or {}).items():
        assert not network.get("external"), f"networks.{name}.external"
        driver = network.get("driver") or "default"
        assert driver in ("bridge", "default"), f"networks.{name}.driver: {driver!r}"
    for name, volume in (document.get("volumes") or {}).items():
        assert not volume.get("external"), f"volumes.{name}.external"
        options = volume.get("driver_opts") or {}
        assert not options or options.get("type") == "tmpfs", f"volumes.{name}: {options}"
        assert "bind" not in str(options.get("o") or ""), f"volumes.{name}: {options}"


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _check_mount(name: str, mount: Any) -> None:
    if isinstance(mount, dict):
        kind = mount.get("type") or "volume"
        assert kind in ("bind", "volume", "tmpfs"), f"{name}: {mount}"
        bind = mount.get("bind") or {}
        propagation = str(bind.get("propagation") or "") if isinstance(bind, dict) else ""
        assert propagation in ("", "private", "rprivate"), f"{name}: {mount}"
    else:
        modes = str(mount).split(":", 2)[2:]
        assert not {"shared", "rshared", "slave", "rslave"} & set(",".join(modes).split(",")), mount
