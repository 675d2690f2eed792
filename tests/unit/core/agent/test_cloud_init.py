"""The files of a VM's cloud-init seed."""

from base64 import b64encode
from email import message_from_string
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from persys.core.agent.cloud_init import Link, is_wanted, seed
from persys.core.sets.members import with_index
from persys.model.ids import WorkloadId
from persys.model.spec import CloudInit, Disk, Login, VMSpec
from persys.wire.agent.vm import vm, vm_message

WEB = WorkloadId("web")
MAC = "52:54:00:00:00:01"
KEY = "ssh-ed25519 AAAA ann"
HASH = "$6$salt$hash"
SCRIPT = "#!/bin/sh\necho hello\n"
MACHINE = VMSpec(1, 512, name="web", os_image="debian-12")


NOBODY = Login()
A_MIME_TEXT = """\
Content-Type: multipart/mixed; boundary=x
MIME-Version: 1.0

--x
Content-Type: text/cloud-config

#cloud-config
{}
--x--
"""


def a_machine(login: Login = NOBODY, **texts: str) -> VMSpec:
    return replace(MACHINE, cloud_init=CloudInit(**texts), login=login)


def the_file(name: str, spec: VMSpec, *links: Link) -> str:
    return seed(WEB, spec, links).files[name].decode()


def the_config(name: str, spec: VMSpec, *links: Link) -> dict[str, Any]:
    found = yaml.safe_load(the_file(name, spec, *links))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("given", ["", "instance-id: mine\nlocal-hostname: own\nrole: db\n"])
def test_a_member_of_a_set_finds_its_index_in_its_meta_data(given: str) -> None:
    member = with_index(a_machine(meta_data=given), 2)

    assert isinstance(member, VMSpec)
    received = vm(vm_message(member))  # as its agent gets it

    assert received.metadata["persys.index"] == "2"
    found = the_config("meta-data", received)
    assert found["persys_index"] == 2
    assert found["local-hostname"] == ("own" if given else "web")
    assert found.get("role") == ("db" if given else None)


@pytest.mark.parametrize("text", [SCRIPT, "#cloud-config\n{}", "Content-Type: text/plain\n\nx", ""])
def test_user_data_is_passed_unchanged(text: str) -> None:
    login = Login(ssh_keys=(KEY,))

    assert the_file("user-data", a_machine(login, user_data=text)) == text


def test_user_data_in_one_string_is_decoded_even_if_binary() -> None:
    packed = b"\x1f\x8b\x00\xff"
    spec = replace(MACHINE, cloud_init_base64=b64encode(packed).decode())

    assert seed(WEB, spec, []).files["user-data"] == packed


def test_structured_user_data_takes_precedence_over_the_string() -> None:
    spec = replace(a_machine(user_data=SCRIPT), cloud_init_base64=b64encode(b"other").decode())

    assert the_file("user-data", spec) == SCRIPT


def test_user_data_in_one_string_that_is_not_base64_is_plain() -> None:
    assert the_file("user-data", replace(MACHINE, cloud_init_base64=SCRIPT)) == SCRIPT


def test_the_vm_gets_its_host_name() -> None:
    spec = replace(MACHINE, name="Web_1.shop")

    assert the_config("meta-data", spec)["local-hostname"] == "web-1-shop"


def test_meta_data_of_the_user_is_completed_and_not_overruled() -> None:
    meta_data = "local-hostname: mine\npublic-keys: [a]\n"

    found = the_config("meta-data", a_machine(meta_data=meta_data))

    assert found["local-hostname"] == "mine"
    assert found["public-keys"] == ["a"]
    assert found["instance-id"].startswith("web-")


def test_complete_meta_data_is_passed_unchanged() -> None:
    meta_data = "# mine\ninstance-id:   i1\nlocal-hostname: x\n"

    assert the_file("meta-data", a_machine(meta_data=meta_data)) == meta_data


def test_a_resized_vm_keeps_its_instance_id() -> None:
    small = a_machine(Login(ssh_keys=(KEY,)), user_data=SCRIPT)
    large = replace(small, vcpus=4, memory_mb=4096, disks=(Disk(size_gb=9),))

    assert seed(WEB, small, []).files == seed(WEB, large, []).files


@pytest.mark.parametrize(
    "other",
    [
        a_machine(user_data=SCRIPT + "echo more\n"),
        a_machine(user_data=SCRIPT, vendor_data="#cloud-config\n{}"),
        a_machine(Login(ssh_keys=(KEY,)), user_data=SCRIPT),
        a_machine(user_data=SCRIPT, network_config="version: 2"),
    ],
    ids=["user data", "vendor data", "login", "network"],
)
def test_a_changed_seed_is_another_instance(other: VMSpec) -> None:
    before = a_machine(user_data=SCRIPT)

    assert the_config("meta-data", before) != the_config("meta-data", other)
    assert seed(WEB, before, []).sha256 != seed(WEB, other, []).sha256


def test_ssh_keys_without_a_user_are_for_the_user_of_the_image() -> None:
    config = the_config("vendor-data", a_machine(Login(ssh_keys=(KEY,))))

    assert config == {"user": {"ssh_authorized_keys": [KEY]}}


def test_a_named_user_is_created_in_addition_to_the_user_of_the_image() -> None:
    text = the_file("vendor-data", a_machine(Login("ann", (KEY,), HASH)))
    config = yaml.safe_load(text)

    assert text.startswith("#cloud-config\n")
    assert config["ssh_pwauth"] is True
    assert config["users"][0] == "default"
    assert config["users"][1] == {
        "name": "ann",
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "shell": "/bin/bash",
        "ssh_authorized_keys": [KEY],
        "lock_passwd": False,
        "hashed_passwd": HASH,
    }


def test_root_may_log_in_when_it_is_named() -> None:
    config = the_config("vendor-data", a_machine(Login("root", (KEY,))))

    assert config["disable_root"] is False


@pytest.mark.parametrize(
    "vendor_data",
    [
        "#cloud-config\npackages: [ä]\n",
        SCRIPT,
        A_MIME_TEXT,
    ],
    ids=["config", "script", "MIME"],
)
def test_a_login_stands_beside_the_users_own_vendor_data(vendor_data: str) -> None:
    spec = a_machine(Login(ssh_keys=(KEY,)), vendor_data=vendor_data)

    complete = message_from_string(the_file("vendor-data", spec))
    parts = [part.get_payload(decode=True) for part in complete.walk() if not part.is_multipart()]

    assert complete.get_content_type() == "multipart/mixed"
    assert len(parts) == 2
    assert sum(KEY.encode() in bytes(part) for part in parts) == 1
    assert the_file("vendor-data", spec) == the_file("vendor-data", spec)


def test_vendor_data_without_a_login_is_passed_unchanged() -> None:
    assert the_file("vendor-data", a_machine(vendor_data="#cloud-config\n# mine")) == (
        "#cloud-config\n# mine"
    )


def test_interfaces_are_found_by_their_address_and_ask_for_their_own() -> None:
    config = the_config("network-config", MACHINE, Link(MAC))

    assert config == {
        "version": 2,
        "ethernets": {
            "eth0": {"match": {"macaddress": MAC}, "set-name": "eth0", "dhcp4": True},
        },
    }


def test_a_static_address_has_its_gateway_and_nameservers() -> None:
    link = Link(
        MAC, dhcp=False, address="10.0.0.5/24", gateway="10.0.0.1", nameservers=("9.9.9.9",)
    )

    card = the_config("network-config", MACHINE, link)["ethernets"]["eth0"]

    assert card["dhcp4"] is False
    assert card["addresses"] == ["10.0.0.5/24"]
    assert card["gateway4"] == "10.0.0.1"
    assert card["nameservers"] == {"addresses": ["9.9.9.9"]}


def test_the_users_own_network_configuration_is_taken_instead() -> None:
    spec = a_machine(network_config="version: 1")

    assert the_file("network-config", spec, Link(MAC)) == "version: 1"


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (VMSpec(1, 512, disks=(Disk(path="/a.qcow2"),)), False),
        (VMSpec(1, 512, os_image="debian-12"), True),
        (VMSpec(1, 512, cloud_init=CloudInit(user_data=SCRIPT)), True),
        (VMSpec(1, 512, cloud_init_base64="eA=="), True),
        (VMSpec(1, 512, login=Login(ssh_keys=(KEY,))), True),
    ],
    ids=["empty", "an image", "user data", "one string", "a login"],
)
def test_a_seed_is_created_only_for_a_vm_that_needs_one(spec: VMSpec, wanted: bool) -> None:
    assert is_wanted(spec) is wanted
