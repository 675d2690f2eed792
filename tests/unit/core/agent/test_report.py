"""How a container is described."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.core.agent.progress import Artefact, Condition
from persys.core.agent.report import LOG_TAIL_BYTES_MAX, describe, tail
from persys.model.ids import Revision


def test_an_absent_artefact_has_no_metadata() -> None:
    assert describe(None) == {}


def test_only_known_values_are_reported() -> None:
    words = describe(Artefact("c1", "persys-web", Condition.CREATED, Revision("r1")))

    assert words["container.state"] == "created"
    assert "container.started_at" not in words
    assert "container.stderr" not in words


@given(st.text())
def test_a_tail_is_the_end_of_its_text_and_never_too_long(text: str) -> None:
    long = text * 500
    found = tail(long)

    assert len(found.encode()) <= LOG_TAIL_BYTES_MAX
    assert long.encode("utf-8", "replace").decode().endswith(found)


def test_an_exit_code_is_reported_only_after_the_exit() -> None:
    ended_at = datetime(2026, 1, 1, tzinfo=UTC)
    running = Artefact("c1", "persys-web", Condition.RUNNING, Revision("r1"))
    ended = replace(running, condition=Condition.EXITED, finished_at=ended_at)

    assert "container.exit_code" not in describe(replace(running, finished_at=ended_at))
    assert describe(ended)["container.exit_code"] == "0"
