"""The default id of a node: its host name at the first start."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from persys.agent.journal.store import Journal, stored_node_id
from persys.errors import SettingsError
from persys.model.ids import NodeId

if TYPE_CHECKING:
    from collections.abc import Callable

    from shells.agent.conftest import Agent


def test_a_new_node_uses_its_host_name(new_agent: "Callable[..., Agent]") -> None:
    agent = new_agent(PERSYS_NODE_ID="", PERSYS_DOCKER_ENABLED="false")

    agent.start()

    assert agent.logged("agent.serving")[0]["node_id"] == socket.gethostname()
    agent.kill()
    assert stored_node_id(agent.directory / "state.db") == socket.gethostname()


def test_a_node_keeps_the_id_of_its_journal(new_agent: "Callable[..., Agent]") -> None:
    agent = new_agent(PERSYS_NODE_ID="", PERSYS_DOCKER_ENABLED="false")
    earlier = NodeId("atlas-5f1c09a2b7e4")
    Journal(agent.directory / "state.db", cluster_id="default", node_id=earlier).close()

    agent.start()

    assert agent.logged("agent.serving")[0]["node_id"] == earlier


def test_without_a_journal_there_is_no_stored_id(tmp_path: Path) -> None:
    assert stored_node_id(tmp_path / "state.db") == ""


def test_a_file_that_is_not_a_journal_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_text("not a database " * 100)

    with pytest.raises(SettingsError, match=str(path)):
        stored_node_id(path)
