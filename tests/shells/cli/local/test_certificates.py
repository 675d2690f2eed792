"""The certificates of `persys up`: issued once, and again when they are no longer valid."""

import socket
from pathlib import Path

import pytest

from persys.ca.app import open_authority
from persys.ca.settings import CaSettings
from persys.cli.local.processes import LocalCertificates
from persys.infra.clock import SystemClock
from persys.infra.net.node_name import own_node_id
from persys.model.identity import Identity, Role
from persys.wire.ca.messages import RevokeRequest


def test_valid_certificates_are_kept_and_revoked_ones_are_reissued(tmp_path: Path) -> None:
    bootstrap = LocalCertificates(tmp_path, 8888)
    host, node = socket.gethostname(), own_node_id("")
    identities = [f"scheduler/{host}", f"agent/{node}", f"gateway/{host}", "admin/up"]
    assert bootstrap.ensure() == identities
    assert bootstrap.ensure() == []

    authority = open_authority(CaSettings(dir=bootstrap.ca_dir), SystemClock(), tuple)
    authority.revoke(Identity(Role.SCHEDULER, "s"), RevokeRequest(role=Role.AGENT, name=node))
    authority.database.close()

    assert bootstrap.ensure() == [f"agent/{node}"]
    assert bootstrap.ensure() == []


def test_an_installation_keeps_the_node_id_of_its_certificate(tmp_path: Path) -> None:
    bootstrap = LocalCertificates(tmp_path, 8888)
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("PERSYS_NODE_ID", "atlas-5f1c09a2b7e4")
        bootstrap.ensure()

    assert bootstrap.ensure() == []
