"""Secret values in the journal are encrypted, also those of older versions."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_supervisor
from persys.agent.journal.records import Entry, JournalChange, ReportedStatus
from persys.agent.journal.secrets import CREDENTIAL, journal_key_file
from persys.agent.journal.store import Journal
from persys.agent.metrics import Metrics
from persys.core.secrets import put_back, take_out
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId
from persys.model.spec import ComposeSpec, ContainerSpec, FileMount, Spec, type_of
from persys.model.status import Actual
from persys.model.workload import Desired, Order
from persys.wire.stored.records import encode

VALUE = "hunter2-of-the-test"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
WEB = WorkloadId("web")


def an_order(spec: Spec, *secret_env: str) -> Order:
    revision = Revision("r1")
    return Order(WEB, type_of(spec), revision, 1, Desired.RUNNING, spec, secret_env=secret_env)


def an_entry() -> Entry:
    files = (FileMount("/etc/key", VALUE.encode(), secret=True),)
    spec = ContainerSpec("image", env={"PASSWORD": VALUE, "COLOUR": "red"}, files=files)
    status = ReportedStatus(Actual.RUNNING, NOW)
    return Entry(an_order(spec, "PASSWORD"), 1, ActionId("a"), NOW, NOW, status)


def opened(directory: Path) -> Journal:
    return Journal(directory / "state.db", cluster_id="c", node_id=NodeId("n1"))


async def write(directory: Path) -> None:
    journal = opened(directory)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(journal.run(a_supervisor(), Metrics().journal.written))
        await journal.commit(JournalChange(entry=an_entry()))
        running.cancel()
    journal.close()


def holders(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if VALUE.encode() in path.read_bytes()]


async def test_a_secret_value_is_encrypted_in_every_file_and_restored(tmp_path: Path) -> None:
    await write(tmp_path)

    assert holders(tmp_path) == []
    journal = opened(tmp_path)
    assert journal.entries[WEB] == an_entry()
    journal.close()
    assert (tmp_path / "state.db.key").stat().st_mode & 0o777 == 0o600


def test_values_of_an_earlier_version_are_encrypted_at_the_start(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as former:
        former.execute("INSERT INTO entries VALUES (?, ?)", (WEB, encode(an_entry())))
        former.commit()
    assert holders(tmp_path) == ["state.db"]

    journal = opened(tmp_path)

    assert journal.entries[WEB] == an_entry()
    assert holders(tmp_path) == []
    journal.close()
    assert holders(tmp_path) == []


async def test_without_the_key_rows_with_secrets_are_quarantined(tmp_path: Path) -> None:
    await write(tmp_path)
    (tmp_path / "state.db.key").unlink()

    journal = opened(tmp_path)

    assert journal.entries == {}
    assert journal.unreadable == {WEB}
    journal.close()


def test_the_key_may_be_a_credential_of_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "state.db.key"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    assert journal_key_file(tmp_path / "state.db").path == beside
    (tmp_path / "credentials").mkdir()
    credential = tmp_path / "credentials" / CREDENTIAL
    credential.write_bytes(beside.name.encode())

    assert journal_key_file(tmp_path / "state.db").path == credential
    assert journal_key_file(tmp_path / "state.db", "/key").path == Path("/key")


texts = st.text(max_size=8)
specs = st.one_of(
    st.builds(
        ContainerSpec,
        image=st.just("image"),
        env=st.dictionaries(st.sampled_from("ABC"), texts),
        files=st.lists(
            st.builds(FileMount, texts, st.binary(max_size=8), secret=st.booleans()), max_size=3
        ).map(tuple),
    ),
    st.builds(ComposeSpec, env=st.dictionaries(st.sampled_from("ABC"), texts)),
)


@given(spec=specs, names=st.lists(st.sampled_from("ABCD"), unique=True))
def test_extracted_secret_values_are_restored(spec: Spec, names: list[str]) -> None:
    order = an_order(spec, *names)

    without, values = take_out(order)

    assert put_back(without, values) == order
    assert not take_out(without)[1]
