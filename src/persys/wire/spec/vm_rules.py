"""Validation of VM specs of both contracts. Each error uses the field names of the contract in use."""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from ipaddress import ip_address, ip_interface
from urllib.parse import urlsplit

from msgspec.structs import replace

from persys.core.agent.cloud_init import YAML_LIMITS
from persys.core.bounded_yaml import YamlError, load
from persys.errors import InvalidError
from persys.model.spec import CloudInit, Disk, Network, VMSpec, is_address
from persys.wire.spec import checks

VCPUS_MAX = checks.CPU_MILLICORES_MAX // 1000
DEVICES_MAX = 64  # disks, and as many interfaces
NAMESERVERS_MAX = 8
USER_DATA_BYTES_MAX = 64 * 1024
META_DATA_BYTES_MAX = YAML_LIMITS.bytes_max

_FORMATS = {"": "", "qcow2": "qcow2", "raw": "raw", "iso": "iso"}
_TYPES = {"": "", "disk": "disk", "cdrom": "cdrom"}
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,62}")
_IMAGE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._+]{0,127}")
_NETWORK = re.compile(r"[^\s/\0\x00-\x1f]{1,128}")
_POOL = _NETWORK
_MULTICAST = 0x01


def checked(spec: VMSpec, where: str, *, device_field: str, address_field: str) -> VMSpec:
    """The validated spec with normalized values. The field arguments are names of this contract."""
    if spec.name and not _NAME.fullmatch(spec.name):
        expected = "expected up to 63 letters, digits, '-', '.' and '_'"
        problem = f"invalid VM name {checks.quoted(spec.name)}: {expected}"
        raise InvalidError(f"{where}.name", problem)
    checks.number(spec.vcpus, f"{where}.vcpus", least=1, most=VCPUS_MAX)
    checks.number(spec.memory_mb, f"{where}.memory_mb", least=1, most=checks.MEMORY_MB_MAX)
    for field, count in (("disks", len(spec.disks)), ("networks", len(spec.networks))):
        if count > DEVICES_MAX:
            problem = f"has {count} entries; expected at most {DEVICES_MAX}"
            raise InvalidError(f"{where}.{field}", problem)
    taken: set[str] = set()
    disks = tuple(
        _disk(disk, f"{where}.disks[{index}]", device_field, taken)
        for index, disk in enumerate(spec.disks)
    )
    macs: set[str] = set()
    networks = tuple(
        _network(network, f"{where}.networks[{index}]", address_field, macs)
        for index, network in enumerate(spec.networks)
    )
    checks.number(
        spec.stop_grace_seconds, f"{where}.stop_grace_seconds", most=checks.STOP_GRACE_SECONDS_MAX
    )
    image(spec.os_image, f"{where}.os_image")
    return replace(spec, disks=disks, networks=networks)


def image(text: str, path: str) -> str:
    """The name of an image on the nodes, or an http or https URL."""
    if not text or _IMAGE.fullmatch(text):
        return text
    if is_address(text) and _is_web_address(text):
        return text
    expected = "expected a name, for example debian-12, or an http or https URL without a password"
    raise InvalidError(path, f"invalid image {checks.quoted(text)}: {expected}")


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host, user = parts.hostname, parts.username
    except ValueError:
        return False
    plain = text.isascii() and text.isprintable() and " " not in text
    return parts.scheme in ("http", "https") and bool(host) and user is None and plain


def cloud_init(config: CloudInit, opaque: str, where: str, *, field: str) -> None:
    """Check the size and syntax. `opaque` is the user data of the agent contract's `cloud_init` field."""
    for name, text, most in (
        ("user_data", config.user_data, USER_DATA_BYTES_MAX),
        ("vendor_data", config.vendor_data, USER_DATA_BYTES_MAX),
        ("meta_data", config.meta_data, META_DATA_BYTES_MAX),
        ("network_config", config.network_config, META_DATA_BYTES_MAX),
    ):
        _short(len(text.encode()), most, f"{where}.{field}.{name}")
    for name, text in (("meta_data", config.meta_data), ("network_config", config.network_config)):
        if text:
            _mapping(text, f"{where}.{field}.{name}")
    if opaque:
        _short(len(_decoded(opaque)), USER_DATA_BYTES_MAX, f"{where}.cloud_init")


def _decoded(text: str) -> bytes:
    try:
        return b64decode("".join(text.split()), validate=True)
    except (Base64Error, ValueError):
        return text.encode()  # third-party agents accept plain text too


def _short(byte_count: int, most: int, path: str) -> None:
    if byte_count > most:
        raise InvalidError(path, f"has {byte_count} bytes; expected at most {most}")


def _mapping(text: str, path: str) -> None:
    try:
        found = load(text, YAML_LIMITS)
    except YamlError as err:
        raise InvalidError(path, str(err)) from err
    if not isinstance(found, dict):
        raise InvalidError(path, "expected a YAML mapping of keys to values")


def _disk(disk: Disk, where: str, device_field: str, taken: set[str]) -> Disk:
    checks.device(disk.device, f"{where}.{device_field}")
    if disk.device and disk.device in taken:
        raise InvalidError(f"{where}.{device_field}", f"{disk.device} is used twice")
    taken.add(disk.device)
    checks.number(disk.size_gb, f"{where}.size_gb", most=checks.DISK_GB_MAX)
    if disk.path:
        checks.absolute_path(disk.path, f"{where}.path")
    if disk.pool_name and not _POOL.fullmatch(disk.pool_name):
        expected = "expected up to 128 characters without spaces and '/'"
        problem = f"invalid pool name {checks.quoted(disk.pool_name)}: {expected}"
        raise InvalidError(f"{where}.pool_name", problem)
    if disk.pool_name and disk.path:
        raise InvalidError(f"{where}.path", "conflicts with pool_name; set only one of them")
    return replace(
        disk,
        format=checks.word(disk.format, _FORMATS, f"{where}.format", "qcow2, raw or iso"),
        type=checks.word(disk.type, _TYPES, f"{where}.type", "disk or cdrom"),
    )


def _network(network: Network, where: str, address_field: str, macs: set[str]) -> Network:
    if network.name and not _NETWORK.fullmatch(network.name):
        field = "bridge" if address_field == "static_ip" else "network"
        expected = "expected up to 128 characters without spaces and '/'"
        problem = f"invalid {field} name {checks.quoted(network.name)}: {expected}"
        raise InvalidError(f"{where}.{field}", problem)
    checks.ip_address(network.ip_address, f"{where}.{address_field}")
    mac_address = checks.mac_address(network.mac_address, f"{where}.mac_address")
    if mac_address:
        if int(mac_address[:2], 16) & _MULTICAST:
            problem = f"{mac_address} is a multicast address; expected a unicast address"
            raise InvalidError(f"{where}.mac_address", problem)
        if mac_address in macs:
            raise InvalidError(f"{where}.mac_address", f"{mac_address} is used twice")
        macs.add(mac_address)
    _route(network, where, address_field)
    return replace(network, mac_address=mac_address)


def _route(network: Network, where: str, address_field: str) -> None:
    if network.gateway:
        _plain_address(network.gateway, f"{where}.gateway")
        if not network.ip_address:
            raise InvalidError(f"{where}.gateway", f"needs {address_field}")
        version = ip_interface(network.ip_address).version
        if ip_address(network.gateway).version != version:
            problem = f"{network.gateway} has another IP version than {address_field}"
            raise InvalidError(f"{where}.gateway", problem)
    if len(network.nameservers) > NAMESERVERS_MAX:
        problem = f"has {len(network.nameservers)} entries; expected at most {NAMESERVERS_MAX}"
        raise InvalidError(f"{where}.nameservers", problem)
    for index, server in enumerate(network.nameservers):
        _plain_address(server, f"{where}.nameservers[{index}]")


def _plain_address(text: str, path: str) -> None:
    try:
        ip_address(text)
    except ValueError as err:
        problem = f"invalid IP address {checks.quoted(text)}: expected IPv4 or IPv6"
        raise InvalidError(path, problem) from err
