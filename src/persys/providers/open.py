"""Opens the provider of a node pool. A client library is imported only if a pool uses it."""

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

from persys.errors import InvalidError, SettingsError
from persys.infra.clock import SystemClock
from persys.model.nodepool import NodePool
from persys.providers import exec as programs_of_operator
from persys.providers import libvirt
from persys.providers.port import MachineRequest, Provider, WorkloadApi
from persys.providers.thread_calls import ThreadCalls

PROVIDERS = ("ec2", "exec", "libcloud", "libvirt")
PROGRAMS = Path("/etc/persys/providers")  # a directory of programs for each set
PROGRAMS_OPTION = "programs"
PACKAGES_OPTION = (
    "packages"  # of every provider: packages that a machine installs at its first boot
)
_SET_NAME = re.compile(r"[a-z0-9][-a-z0-9_]{0,62}")
_EC2_THREADS_MAX = 4


def open_provider(
    pool: NodePool,
    credentials: Mapping[str, str],
    workloads: WorkloadApi | None,
    *,
    programs: Path = PROGRAMS,
) -> Provider:
    """Raises InvalidError if an option is wrong, SettingsError if this installation cannot serve the pool.

    `workloads` is needed by the provider `libvirt`.
    """
    match pool.provider:
        case "ec2":
            return _open_ec2(pool, credentials)
        case "libcloud":
            return _open_libcloud(pool, credentials)
        case "exec":
            return _open_exec(pool, credentials, programs)
        case "libvirt":
            return _open_libvirt(pool, workloads)
    expected = ", ".join(PROVIDERS)
    raise InvalidError(
        "provider", f"invalid provider '{pool.provider}': expected one of {expected}"
    )


def _open_ec2(pool: NodePool, credentials: Mapping[str, str]) -> Provider:
    module = _library_module("ec2", "boto3")
    _check_options(pool, module.OPTIONS)
    provider: Provider = module.Ec2Provider(
        example=MachineRequest(
            name=f"{pool.pool_id}-check",
            tags={},
            size=pool.sizes[0].name if pool.sizes else "",
            image=pool.image,
            region=pool.region,
            user_data="",
            options=pool.options,
        ),
        credentials=credentials,
        clock=SystemClock(),
        threads=ThreadCalls("ec2", threads_max=_EC2_THREADS_MAX),
    )
    return provider


def _open_libcloud(pool: NodePool, credentials: Mapping[str, str]) -> Provider:
    module = _library_module("libcloud", "libcloud")
    arguments = {name for name in pool.options if name.startswith(module.ARGUMENT_PREFIX)}
    _check_options(pool, module.OPTIONS | arguments)
    provider: Provider = module.LibcloudProvider(
        options=pool.options,
        credentials=credentials,
        threads=ThreadCalls("libcloud", threads_max=1),
    )
    return provider


def _open_exec(pool: NodePool, credentials: Mapping[str, str], programs: Path) -> Provider:
    """Other options are for the programs."""
    name = pool.options.get(PROGRAMS_OPTION, "")
    if not _SET_NAME.fullmatch(name):
        raise InvalidError(
            f"options.{PROGRAMS_OPTION}",
            f"invalid name '{name}': expected the name of a directory in {programs}, for example proxmox",
        )
    return programs_of_operator.ExecProvider(programs / name, credentials=credentials)


def _open_libvirt(pool: NodePool, workloads: WorkloadApi | None) -> Provider:
    if workloads is None:
        raise SettingsError("provider 'libvirt' needs the workloads of a cluster")
    _check_options(pool, libvirt.OPTIONS)
    return libvirt.LibvirtProvider(workloads, sizes=pool.sizes)


def _library_module(provider: str, library: str) -> ModuleType:
    try:
        return import_module(f"persys.providers.{provider}")
    except ModuleNotFoundError as err:
        if err.name is None or err.name.partition(".")[0] not in (library, "botocore"):
            raise
        raise SettingsError(
            f"provider '{provider}' needs the library {library}: pip install 'persys[{provider}]'"
        ) from err


def _check_options(pool: NodePool, known: frozenset[str]) -> None:
    known |= {PACKAGES_OPTION}
    for name in sorted(pool.options.keys() - known):
        raise InvalidError(
            f"options.{name}", f"unknown option: expected one of {', '.join(sorted(known))}"
        )
    size = pool.options.get("disk_gb", "")
    if size and not (size.isascii() and size.isdecimal() and int(size) > 0):
        raise InvalidError(
            "options.disk_gb", f"invalid size '{size}': expected GiB, for example 40"
        )
