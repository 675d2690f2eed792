"""Decodes the Compose spec of both contracts: an inline file (plain or base64) or a Git source.

`core.bounded_yaml` limits the depth and the size after alias expansion, so later readers need no limits.
"""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from persys.core.agent.report import PROJECT_NAME
from persys.core.bounded_yaml import MappingNode, YamlError
from persys.core.bounded_yaml import compose as compose_yaml
from persys.errors import InvalidError
from persys.model.placement import Resources
from persys.model.spec import ComposeSpec, StackNeeds
from persys.wire.compose import git_source
from persys.wire.compose.compose_file import PROFILES, read_inline
from persys.wire.spec import checks

NOTHING = Resources()

_SOURCES = {"inline": "inline", "git": "git"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROJECT = re.compile(r"[a-z0-9][-_a-z0-9]{0,99}")


def compose(
    *,
    source_type: str,
    text: str,
    text_field: str,
    git_repo: str,
    git_ref: str,
    env: Mapping[str, str],
    project_name: str = "",
    project_derived: bool = False,
    git_path: str = "",
    git_credential: str = "",
    image_credential: str = "",
    delete_volumes: bool = False,
    reserved: Resources = NOTHING,
) -> ComposeSpec:
    """The spec of an inline or Git source. `text_field` is the field name of the text in this contract."""
    if project_name and not _PROJECT.fullmatch(project_name):
        problem = (
            f"invalid project name {checks.quoted(project_name)}: expected up to 100 of a-z, 0-9, '-' "
            "and '_', beginning with a letter or a digit"
        )
        raise InvalidError("spec.compose.project_name", problem)
    common = ComposeSpec(
        env=_env(env),
        project_name=project_name,
        project_derived=project_derived,
        image_credential=checks.credential(image_credential, "spec.compose.image_credential"),
        delete_volumes=delete_volumes,
        reserved=reserved,
    )
    if _source(source_type, text=text, text_field=text_field, git_repo=git_repo) == "git":
        if text:
            raise InvalidError(f"spec.compose.{text_field}", "is set, but the source is git")
        return replace(
            common,
            source_type="git",
            git_repo=git_source.repository(git_repo, "spec.compose.git_repo"),
            git_ref=git_source.word(git_ref, "spec.compose.git_ref") if git_ref else "",
            git_path=git_source.path(git_path, "spec.compose.git_path"),
            git_credential=checks.credential(git_credential, "spec.compose.git_credential"),
            # The content is unknown until a node has fetched it, so it may have data.
            needs=StackNeeds(holds_data=True),
        )
    of_git = {
        "git_repo": git_repo,
        "git_ref": git_ref,
        "git_path": git_path,
        "git_credential": git_credential,
    }
    for name, value in of_git.items():
        if value:
            raise InvalidError(f"spec.compose.{name}", "is set, but the source is inline")
    plain = compose_text(text, f"spec.compose.{text_field}")
    try:
        needs = read_inline(plain, common.env).needs
    except InvalidError as err:
        raise InvalidError(f"spec.compose.{text_field}", str(err)) from None
    return replace(common, yaml=plain, needs=needs)


def _env(values: Mapping[str, str]) -> dict[str, str]:
    """Refuse variables that configure Compose itself, for example which engine it uses."""
    found = checks.env(values, "spec.compose.env")
    for name in found:
        where = f"spec.compose.env[{checks.quoted(name)}]"
        if not _VARIABLE.fullmatch(name):
            raise InvalidError(where, "invalid variable name: expected letters, digits and '_'")
        if name.startswith(("COMPOSE_", "DOCKER_")) and name not in (PROFILES, PROJECT_NAME):
            raise InvalidError(where, f"configures Compose itself; only {PROFILES} can be set")
    return found


def _source(source_type: str, *, text: str, text_field: str, git_repo: str) -> str:
    if source_type:
        return checks.word(source_type, _SOURCES, "spec.compose.source_type", "inline or git")
    if not text and not git_repo:
        raise InvalidError("spec.compose", f"has no source; expected {text_field} or git_repo")
    return "inline" if text else "git"


def compose_text(text: str, path: str) -> str:
    """The plain text of a Compose file. Raises InvalidError if it is not a mapping with `services`."""
    decoded = checks.base64_text(text)
    if decoded is not None and _problem(decoded) is None:
        return decoded
    problem = _problem(text)
    if problem is not None:
        raise InvalidError(path, problem)
    return text


def _problem(text: str) -> str | None:
    """Why this is not a mapping with a mapping named `services`, or None."""
    try:
        root = compose_yaml(text)
    except YamlError as err:
        return f"{err}, in plain text or base64" if not err.field else str(err)
    if isinstance(root, MappingNode):
        for key, value in root.value:
            if key.value == "services" and isinstance(value, MappingNode):
                return None
    return "not a Compose file: expected a mapping with `services`"
