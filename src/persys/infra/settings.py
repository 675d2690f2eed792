"""Settings of a process, from flags, environment variables, a YAML file and defaults, in this order.

Each process has one frozen settings class. A value that cannot be parsed and an unknown key in the file raise
a SettingsError that names it.
"""

import argparse
import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, get_type_hints

from persys.core.duration import format_duration, parse_duration
from persys.errors import SettingsError
from persys.infra.command_line import StrictParser

T = TypeVar("T")

_TRUE = frozenset({"true", "1", "yes"})
_FALSE = frozenset({"false", "0", "no"})
# Stricter than int() and float(), which also accept 1_000 and nan.
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


DEFAULT = "default"  # the source of a value that was not set


def setting(default: Any, *env: str, help: str, secret: bool = False) -> Any:  # noqa: A002
    """A field of a settings class. `env` are its variables; the first one that is set wins."""
    metadata = {"env": env, "help": help, "secret": secret}
    if isinstance(default, dict):  # dataclasses refuse mutable defaults
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """Settings, and the source of each value."""

    settings: T
    sources: Mapping[str, str]
    print_config: bool

    def describe(self) -> str:
        """Every value and its source, secrets masked."""
        lines = []
        for field in dataclasses.fields(self.settings):  # type: ignore[arg-type]  # T is a settings dataclass
            value = getattr(self.settings, field.name)
            shown = "********" if field.metadata["secret"] and value else _shown(value)
            lines.append(f"{field.name} = {shown}  # {self.sources[field.name]}")
        return "\n".join(lines)


def load(
    cls: type[T],
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    program: str,
    usual_file: Path | None = None,
    commands: Mapping[str, str] = MappingProxyType({}),
) -> Loaded[T]:
    """`usual_file` is read, if it exists, when --config is not set.

    `commands` are the subcommands of the program, for its help page.
    """
    hints = get_type_hints(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # T is a settings dataclass
    arguments = vars(_parser(fields, hints, program, commands).parse_args(argv))
    file = arguments["config"]
    if file is None and usual_file is not None and usual_file.exists():
        file = str(usual_file)
    from_file = _read_file(file, {field.name for field in fields})
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for field in fields:
        text, source = _find(field, arguments, environ, from_file)
        sources[field.name] = source
        if text is not None:
            values[field.name] = _parse(text, hints[field.name], source)
    return Loaded(cls(**values), sources, arguments["print_config"])


def _parser(
    fields: Sequence[dataclasses.Field[Any]],
    hints: Mapping[str, Any],
    program: str,
    commands: Mapping[str, str],
) -> argparse.ArgumentParser:
    parser = StrictParser(
        prog=program,
        epilog=_listed(program, commands),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", help="YAML file with settings, keys as shown by --print-config")
    parser.add_argument("--print-config", action="store_true", help="show all settings and exit")
    for field in fields:
        flag = field.name.replace("_", "-")
        names = [f"--{flag}"]
        note = f" [{', '.join(field.metadata['env'])}]" if field.metadata["env"] else ""
        text = f"{field.metadata['help']}{note} (default: {_shown(_default(field)) or 'none'})"
        text = text.replace("%", "%%")
        if hints[field.name] is bool:
            names.insert(0, f"-{flag}")
            parser.add_argument(
                *names, dest=field.name, nargs="?", const="true", metavar="BOOL", help=text
            )
        else:
            parser.add_argument(*names, dest=field.name, help=text)
    return parser


def _listed(program: str, commands: Mapping[str, str]) -> str:
    return "\n".join(f"{program} {name} --help: {text}" for name, text in commands.items())


def _read_file(path: str | None, known: set[str]) -> dict[str, Any]:
    if path is None:
        return {}
    from persys.core.bounded_yaml import (
        YamlError,
        load_mapping,
    )  # imported only when needed: start-up time

    try:
        content = load_mapping(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YamlError) as err:
        raise SettingsError(f"--config {path}: {err}") from err
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingsError(f"--config {path}: unknown key {key!r}{hint}")
    return content


def _find(
    field: dataclasses.Field[Any],
    arguments: Mapping[str, Any],
    environ: Mapping[str, str],
    from_file: Mapping[str, Any],
) -> tuple[Any, str]:
    if arguments[field.name] is not None:
        return arguments[field.name], f"--{field.name.replace('_', '-')}"
    for name in field.metadata["env"]:
        if environ.get(name):
            return environ[name], name
    if from_file.get(field.name) is not None:
        return from_file[field.name], f"file key {field.name}"
    return None, DEFAULT


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    assert field.default is not MISSING, f"setting {field.name} has no default"
    return field.default


def _parse(value: Any, kind: Any, source: str) -> Any:
    parse = _PARSERS.get(kind, str)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        parse = partial(_one_of, kind)
    if isinstance(value, (list, dict)) and parse not in (_words, _pairs, _mappings):
        raise SettingsError(f"{source}={value!r}: expected one value")
    try:
        return parse(value)
    except ValueError as err:
        raise SettingsError(f"{source}={value!r}: {err}") from err


def _integer(value: Any) -> int:
    if not _INTEGER.fullmatch(str(value).strip()):
        raise ValueError("expected a whole number")
    return int(str(value))


def _number(value: Any) -> float:
    if not _NUMBER.fullmatch(str(value).strip()):
        raise ValueError("expected a number")
    return float(str(value))


def _boolean(value: Any) -> bool:
    word = str(value).strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("expected true, false, 1, 0, yes or no")


def _one_of(kind: type[StrEnum], value: Any) -> StrEnum:
    word = str(value).strip().lower()
    if word not in list(kind):
        raise ValueError(f"expected {' or '.join(kind)}")
    return kind(word)


def _words(value: Any) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else str(value).split(",")
    return tuple(word for part in parts if (word := str(part).strip()))


def _pairs(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(key): str(item) for key, item in value.items()}
    pairs: dict[str, str] = {}
    for word in _words(value):
        key, equals, item = word.partition("=")
        if not equals or not key:
            raise ValueError("expected k=v,k2=v2")
        pairs[key] = item
    return pairs


def _mappings(value: Any) -> tuple[dict[str, str], ...]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("expected a list of mappings in the file")
    return tuple(_pairs(one) for one in value)


_PARSERS: dict[Any, Callable[[Any], Any]] = {
    int: _integer,
    float: _number,
    bool: _boolean,
    timedelta: lambda value: parse_duration(str(value)),
    Path: lambda value: Path(str(value)),
    tuple[str, ...]: _words,
    dict[str, str]: _pairs,
    tuple[dict[str, str], ...]: _mappings,
}


def _shown(value: Any) -> str:
    match value:
        case timedelta():
            return format_duration(value)
        case tuple():
            return ",".join(value)
        case dict():
            return ",".join(f"{key}={item}" for key, item in value.items())
        case _:
            return str(value)
