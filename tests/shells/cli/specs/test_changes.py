"""Lines about changed fields: short after an apply, complete in a plan, never with a secret."""

import pytest

from persys.cli.specs.changes import change_lines, masked
from persys.core.intent.field_changes import FieldChange

LONG = "x" * 200


def test_a_plan_shows_complete_values_and_an_apply_short_ones() -> None:
    change = FieldChange("container.command", LONG, f"{LONG}y")

    assert list(change_lines([change], diffs=True)) == [f"~ container.command  {LONG} -> {LONG}y"]
    (line,) = change_lines([change])
    assert len(line) < 200


def test_a_text_of_several_lines_is_counted_after_an_apply_and_compared_in_a_plan() -> None:
    change = FieldChange("compose.inline_yaml", "a\nb\n", "a\nc\nd\n")

    assert list(change_lines([change])) == ["~ compose.inline_yaml  2 lines added, 1 removed"]
    first, *diff = change_lines([change], diffs=True)
    assert first == "~ compose.inline_yaml:"
    assert "    +c" in diff


def test_a_new_text_of_several_lines_is_counted() -> None:
    assert list(change_lines([FieldChange("compose.inline_yaml", "", "a\nb")])) == [
        "+ compose.inline_yaml  2 lines"
    ]


@pytest.mark.parametrize(
    ("field", "is_masked"),
    [
        ("container.env.DB_PASSWORD", True),
        ("compose.env.GITHUB_TOKEN", True),
        ("container.env[api.key.secret]", True),
        ("options.access_key", True),
        ("container.files[0].content", True),
        ("vm.login.password_hash", True),
        ("vm.cloud_init_config.user_data", True),
        ("container.env.MODE", False),
        ("container.image_credential", False),
        ("container.image", False),
    ],
)
def test_values_of_secrets_are_masked(field: str, is_masked: bool) -> None:
    found = masked(FieldChange(field, "before", "secret://after"))

    assert found.before == ("********" if is_masked else "before")
    assert found.after == "secret://after"
