"""The domain XML of VMs, written and parsed."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.runtimes.vm.domain_xml import (
    DiskPart,
    DomainParts,
    InterfacePart,
    domain_uuid,
    domain_xml,
    free_device,
    parse_domain,
)
from persys.agent.runtimes.vm.kvm import Accel
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.spec import VMSpec, WorkloadType
from persys.model.workload import Desired, Order

OWNER = OwnerLabels("blue", NodeId("n1"))
WEB = WorkloadId("web")
CONSOLE = Path("/vms/web/console.log")
VDA = DiskPart("vda", "qcow2", {"file": "/disks/web-vda.qcow2"}, boot=1)
CARD = InterfacePart("network", "default", "52:54:00:00:00:01")


def an_order() -> Order:
    spec = VMSpec(2, 512, name="web-vm")
    return Order(WEB, WorkloadType.VM, Revision("r1"), 3, Desired.RUNNING, spec)


def the_domain(*disks: DiskPart, accel: Accel = Accel.TCG, seed: Path | None = None) -> ET.Element:
    parts = DomainParts(disks or (VDA,), (CARD,), seed, {"persys.cloud_init_sha256": "abc"})
    return ET.fromstring(domain_xml(an_order(), OWNER, parts, accel=accel, console=CONSOLE))


def found(domain: ET.Element, path: str) -> ET.Element:
    element = domain.find(path)
    assert element is not None, path
    return element


def test_the_domain_has_the_resources_of_the_spec() -> None:
    domain = the_domain()

    assert domain.findtext("name") == "web-vm"
    assert domain.findtext("vcpu") == "2"
    assert found(domain, "memory").attrib == {"unit": "MiB"}
    assert domain.findtext("memory") == "512"
    assert found(domain, "devices/interface/source").attrib == {"network": "default"}
    assert found(domain, "devices/interface/mac").attrib == {"address": "52:54:00:00:00:01"}


@pytest.mark.parametrize(
    ("accel", "kind", "mode"),
    [(Accel.KVM, "kvm", "host-passthrough"), (Accel.TCG, "qemu", "maximum")],
)
def test_the_domain_type_follows_the_acceleration(accel: Accel, kind: str, mode: str) -> None:
    domain = the_domain(accel=accel)

    assert domain.get("type") == kind
    assert found(domain, "cpu").get("mode") == mode


def test_the_domain_pauses_on_a_full_disk_and_stops_on_a_crash() -> None:
    domain = the_domain()

    assert found(domain, "devices/disk/driver").get("error_policy") == "enospace"
    assert domain.findtext("on_crash") == "destroy"
    assert found(domain, "devices/panic").get("model") == "isa"


def test_the_console_is_logged_to_a_file() -> None:
    log = found(the_domain(), "devices/serial/log")

    assert log.attrib == {"file": str(CONSOLE), "append": "on"}


def test_the_cloud_init_disk_is_last_and_read_only() -> None:
    volume = DiskPart("vdb", "raw", {"file": "/volumes/data"}, serial="a-volume-with-a-long-name")

    *_, data, seed = the_domain(VDA, volume, seed=Path("/vms/web/seed.iso")).iterfind(
        "devices/disk"
    )

    assert found(data, "serial").text == "a-volume-with-a-long"
    assert found(seed, "target").attrib == {"dev": "vdc", "bus": "virtio"}
    assert seed.find("readonly") is not None
    assert seed.find("boot") is None


@pytest.mark.parametrize(
    ("disk", "bus", "machine"),
    [
        (VDA, "virtio", "q35"),
        (DiskPart("sda", "raw", {"file": "/a"}), "scsi", "q35"),
        (DiskPart("sda", "raw", {"file": "/a"}, cdrom=True), "sata", "q35"),
        (DiskPart("hda", "raw", {"file": "/a"}), "ide", "pc"),
    ],
)
def test_the_device_name_selects_the_bus(disk: DiskPart, bus: str, machine: str) -> None:
    domain = the_domain(disk)

    assert found(domain, "devices/disk/target").get("bus") == bus
    assert found(domain, "os/type").get("machine") == machine


def test_the_domain_uuid_is_stable_and_unique() -> None:
    assert domain_uuid(OWNER, WEB) == domain_uuid(OWNER, WEB)
    assert domain_uuid(OWNER, WEB) != domain_uuid(OwnerLabels("blue", NodeId("n2")), WEB)
    assert the_domain().findtext("uuid") == domain_uuid(OWNER, WEB)


def test_domain_xml_round_trips() -> None:
    read = parse_domain(ET.tostring(the_domain(), encoding="unicode"))

    assert OWNER.owns(read.labels, WEB)
    assert read.labels["persys.revision_id"] == "r1"
    assert read.labels["persys.epoch"] == "3"
    assert read.labels["persys.cloud_init_sha256"] == "abc"
    assert (read.name, read.accel, read.console) == ("web-vm", "tcg", str(CONSOLE))
    assert read.mac_addresses == ("52:54:00:00:00:01",)
    assert read.sources == {"vda": "/disks/web-vda.qcow2"}
    assert read.formats == {"vda": "qcow2"}
    assert not read.guest_agent
    assert read.vnc == ""


def test_a_foreign_domain_has_no_labels() -> None:
    read = parse_domain("<domain type='kvm'><name>x</name><devices/></domain>")

    assert read.labels == {}
    assert not OWNER.owns(read.labels, WEB)


def test_runtime_values_of_a_running_domain_are_parsed() -> None:
    domain = the_domain()
    found(domain, "devices/channel/target").set("state", "connected")
    found(domain, "devices/graphics/listen").set("socket", "/libvirt/vnc.sock")

    read = parse_domain(ET.tostring(domain, encoding="unicode"))

    assert read.guest_agent
    assert read.vnc == "unix:/libvirt/vnc.sock"


def test_vnc_listens_on_a_unix_socket_only() -> None:
    graphics = found(the_domain(), "devices/graphics")

    assert [one.attrib for one in graphics] == [{"type": "socket"}]
    assert set(graphics.attrib) == {"type"}


@pytest.mark.parametrize(
    ("taken", "name"),
    [([], "vda"), (["vda"], "vdb"), (["vda", "vdc", "sda"], "vdd"), (["vdz"], "vdaa")],
)
def test_an_added_disk_gets_the_next_free_name(taken: list[str], name: str) -> None:
    assert free_device(taken) == name
