"""Builds the cloud-init seed (NoCloud) of a VM: four files, from its spec.

User data is passed unchanged, whatever its format. A login becomes vendor data, which cloud-init merges below
the user data, so that user data wins. cloud-init runs again only for a new instance id. So the id contains a
checksum of the seed, and does not depend on cpu, memory or disks: a VM that is only resized keeps its users,
its host keys and the results of its scripts.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from email import message_from_string
from email.message import EmailMessage, Message
from hashlib import sha256
from typing import Any

from msgspec import Struct

from persys.core.bounded_yaml import YamlLimits, dump, load_mapping
from persys.model.ids import WorkloadId
from persys.model.spec import CloudInit, Login, VMSpec

ID_DIGITS = 8
HOST_NAME_LENGTH_MAX = 63
YAML_LIMITS = YamlLimits(bytes_max=16 * 1024, nodes_max=5_000)  # of one text

_NOT_IN_HOST_NAMES = re.compile(r"[^a-z0-9-]+")
_IS_MIME = re.compile(r"(?:content-type|mime-version):", re.IGNORECASE)


class Link(Struct, frozen=True):
    """One network interface of the guest."""

    mac_address: str
    dhcp: bool = True
    address: str = ""  # with the length of its prefix
    gateway: str = ""
    nameservers: tuple[str, ...] = ()


class Seed(Struct, frozen=True):
    files: dict[str, bytes]  # by name

    @property
    def sha256(self) -> str:
        """Of all files of the seed."""
        digest = sha256()
        for name, content in sorted(self.files.items()):
            digest.update(f"{name} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()


def is_wanted(spec: VMSpec) -> bool:
    """Whether the VM gets a seed. A user's own disk may not have cloud-init; one from an image does."""
    given = spec.cloud_init != CloudInit() or spec.cloud_init_base64 or spec.login != Login()
    return bool(given or spec.os_image)


def seed(workload_id: WorkloadId, spec: VMSpec, links: Sequence[Link]) -> Seed:
    user_data = _user_data(spec)
    vendor_data = _vendor_data(spec).encode()
    network = (spec.cloud_init.network_config or _network_config(links)).encode()
    mark = sha256(b"\0".join((user_data, vendor_data, network))).hexdigest()[:ID_DIGITS]
    files = {
        "user-data": user_data,
        "meta-data": _meta_data(spec, f"{workload_id}-{mark}").encode(),
        "vendor-data": vendor_data,
        "network-config": network,
    }
    # cloud-init requires user-data; the other files are optional.
    return Seed({name: text for name, text in files.items() if text or name == "user-data"})


def _user_data(spec: VMSpec) -> bytes:
    """The structured form wins over the single string; `core.notes` informs users if both are set."""
    if spec.cloud_init.user_data or not spec.cloud_init_base64:
        return spec.cloud_init.user_data.encode()
    try:
        return b64decode("".join(spec.cloud_init_base64.split()), validate=True)
    except (Base64Error, ValueError):
        return spec.cloud_init_base64.encode()  # deployed agents accept plain text as well


def _meta_data(spec: VMSpec, instance_id: str) -> str:
    """The user's meta-data, unchanged if it is complete."""
    given = spec.cloud_init.meta_data
    found = load_mapping(given, YAML_LIMITS) if given else {}
    missing = {
        name: value
        for name, value in (
            ("instance-id", instance_id),
            ("local-hostname", _host_name(spec.name)),
        )
        if name not in found and value
    }
    return _yaml({**missing, **found}) if missing else given


def _host_name(name: str) -> str:
    plain = _NOT_IN_HOST_NAMES.sub("-", name.lower())[:HOST_NAME_LENGTH_MAX]
    return plain.strip("-")


def _vendor_data(spec: VMSpec) -> str:
    given = spec.cloud_init.vendor_data
    if spec.login == Login():
        return given
    ours = f"#cloud-config\n{_yaml(_login(spec.login))}"
    return _both(ours, given) if given else ours


def _login(login: Login) -> dict[str, Any]:
    user_config: dict[str, Any] = {}
    if login.ssh_keys:
        user_config["ssh_authorized_keys"] = list(login.ssh_keys)
    if login.password_hash:
        user_config |= {"lock_passwd": False, "hashed_passwd": login.password_hash}
    config: dict[str, Any] = {}
    if not login.user:
        config["user"] = user_config  # cloud-init takes the name from the image
    elif login.user == "root":
        config |= {"disable_root": False, "users": ["default", {"name": "root", **user_config}]}
    else:
        rights = {"sudo": "ALL=(ALL) NOPASSWD:ALL", "shell": "/bin/bash"}
        config["users"] = ["default", {"name": login.user, **rights, **user_config}]
    if login.password_hash:
        config["ssh_pwauth"] = True
    return config


def _both(ours: str, given: str) -> str:
    """One MIME text of two parts. cloud-init detects the type of a plain part."""
    theirs = message_from_string(given) if _IS_MIME.match(given) else _part(given)
    message = theirs
    if not theirs.is_multipart():
        message = Message()
        message["Content-Type"] = "multipart/mixed"
        message["MIME-Version"] = "1.0"
        message.attach(theirs)
    message.attach(_part(ours))
    message.set_boundary(f"persys-{sha256((ours + given).encode()).hexdigest()[:16]}")
    return message.as_string()


def _part(text: str) -> Message:
    part = EmailMessage()
    part.set_content(text, subtype="plain", charset="utf-8", cte="base64")
    return part


def _network_config(links: Sequence[Link]) -> str:
    if not links:
        return ""
    cards = {f"eth{index}": _card(link, f"eth{index}") for index, link in enumerate(links)}
    return _yaml({"version": 2, "ethernets": cards})


def _card(link: Link, name: str) -> dict[str, Any]:
    # With a name, because not every guest can configure an interface by its MAC address alone.
    card: dict[str, Any] = {"match": {"macaddress": link.mac_address}, "set-name": name}
    card["dhcp4"] = link.dhcp
    if link.address:
        card["addresses"] = [link.address]
    if link.gateway:
        card["gateway6" if ":" in link.gateway else "gateway4"] = link.gateway
    if link.nameservers:
        card["nameservers"] = {"addresses": list(link.nameservers)}
    return card


def _yaml(value: Mapping[str, Any]) -> str:
    return dump(value, width=4096)
