"""How a container is described."""

from hypothesis import given
from hypothesis import strategies as st

from persys.core.convergence import Artefact, Condition
from persys.core.report import LOG_TAIL_BYTES_MAX, describe, tail
from persys.model.ids import Revision


def test_what_is_not_there_has_no_description() -> None:
    assert describe(None) == {}


def test_only_what_is_known_is_said() -> None:
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
