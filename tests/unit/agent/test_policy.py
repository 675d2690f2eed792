"""What a node lets a machine have."""

from pathlib import Path

import pytest

from persys.agent.policy import NodePolicy
from persys.errors import InvalidError
from persys.model.spec import Disk, VMSpec


def test_a_disk_is_only_where_binds_may_be(tmp_path: Path) -> None:
    policy = NodePolicy(bind_roots=(str(tmp_path),))
    inside, outside = Disk(path=str(tmp_path / "a.qcow2")), Disk(path="/dev/null")

    policy.check(VMSpec(1, 512, disks=(inside, Disk(pool_name="fast"))))
    with pytest.raises(InvalidError) as refused:
        policy.check(VMSpec(1, 512, disks=(inside, outside)))

    assert refused.value.field == "spec.vm.disks[1].path"


def test_a_link_does_not_lead_out_of_the_roots(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/dev")

    with pytest.raises(InvalidError):
        NodePolicy(bind_roots=(str(tmp_path),)).check(
            VMSpec(1, 512, disks=(Disk(path=str(tmp_path / "out" / "sda")),))
        )
