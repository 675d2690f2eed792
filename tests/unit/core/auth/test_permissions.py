"""The tables of permissions."""

import pytest

from persys.core.auth.permissions import ROLES
from persys.model.identity import Permission, Role

CHANGING = {
    Permission.WORKLOADS,
    Permission.EXEC,
    Permission.NODES,
    Permission.DATA,
    Permission.TOKENS,
    Permission.RECOVERY,
    Permission.ORDER,
}


def test_every_role_has_its_permissions() -> None:
    assert set(ROLES) == set(Role)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.GATEWAY])
def test_a_role_that_only_reads_changes_nothing(role: Role) -> None:
    assert not ROLES[role] & CHANGING


def test_only_an_agent_acts_for_a_node() -> None:
    assert [role for role in Role if Permission.REPORT in ROLES[role]] == [Role.AGENT]


def test_an_agent_can_do_nothing_but_be_a_node() -> None:
    assert ROLES[Role.AGENT] == {Permission.REPORT, Permission.ANYONE}
