"""References to secrets in specs: parse, find and resolve them, and redact their values in texts.

The whole value of a variable, or the whole content of a file, is one reference:

    secret://<name>[@<version>]                 in the built-in store
    secret://vault/<path>#<field>[@<version>]   in Vault

A reference without a version means the newest one when the order is sent. A new version does not change
running workloads; a new revision uses it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from persys.errors import InvalidError
from persys.model.secret import (
    SCHEME,
    Reference,
    Secret,
    SecretVersion,
    StoredReference,
    VaultReference,
)
from persys.model.spec import ComposeSpec, ContainerSpec, FileMount, Spec
from persys.model.workload import Order

VALUE_BYTES_MAX = 64 * 1024
VERSIONS_MAX = 10
REDACTED = "********"
REDACTED_FROM_LENGTH = 4  # shorter values occur in too many texts by chance
REDACTED_LINE_FROM_LENGTH = 8  # for one line of several, or for a truncated part
REDACTED_CUT_LENGTH_MAX = 1024
PLAIN_MODE = 0o444
SECRET_MODE = 0o400

_SCHEME = SCHEME.encode()
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_PATH = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_PATH_LENGTH_MAX = 512
_FIELD = re.compile(r"[A-Za-z0-9._-]{1,128}")
_VAULT = "vault/"


class Resolved(Struct, frozen=True):
    """A spec with values in place of references, and the names of the variables that had them."""

    spec: Spec
    secret_env: tuple[str, ...] = ()


def is_reference(text: str) -> bool:
    """Whether the text has the scheme of a reference. It may still be invalid."""
    return text.startswith(SCHEME)


def parse(text: str, field: str) -> Reference:
    """Raises InvalidError with the field."""
    rest = text.removeprefix(SCHEME)
    body, at, version = rest.rpartition("@")
    if not at:
        body, version = rest, ""
    number = int(version) if _VERSION.fullmatch(version) else 0
    if not is_reference(text) or (at and not number):
        raise _wrong(field)
    if not body.startswith(_VAULT):
        if not _NAME.fullmatch(body):
            raise _wrong(field)
        return StoredReference(body, number)
    path, _, named = body.removeprefix(_VAULT).partition("#")
    if not _is_path(path) or not _FIELD.fullmatch(named):
        raise _wrong(field)
    return VaultReference(path, named, number)


def check_name(name: str, field: str = "name") -> str:
    if not _NAME.fullmatch(name):
        raise InvalidError(
            field,
            f"invalid secret name {name[:80]!r}: expected up to 128 of a-z, 0-9, '-', '_' and '.', "
            "beginning with a letter or a digit",
        )
    return name


def references_of(spec: Spec) -> dict[str, Reference]:
    """All references of a spec, by field."""
    return {field: parse(text, field) for field, text in _places(spec)}


def secret_names(spec: Spec) -> frozenset[str]:
    """The secrets that a spec refers to: names, or `vault/<path>`. The spec may be unvalidated."""
    names: set[str] = set()
    for field, text in _places(spec):
        try:
            reference = parse(text, field)
        except InvalidError:
            names.add(text[:_PATH_LENGTH_MAX])
            continue
        match reference:
            case StoredReference(name=name):
                names.add(name)
            case VaultReference(path=path):
                names.add(f"{_VAULT}{path}")
    return frozenset(names)


def put_in(spec: Spec, values: Mapping[Reference, bytes]) -> Resolved:
    """Replace each reference by its value. InvalidError: a variable cannot hold the value."""
    match spec:
        case ContainerSpec():
            env, names = _env(spec.env, "spec.container.env", values)
            files = tuple(
                _file(file, f"spec.container.files[{index}].content", values)
                for index, file in enumerate(spec.files)
            )
            return Resolved(replace(spec, env=env, files=files), names)
        case ComposeSpec():
            env, names = _env(spec.env, "spec.compose.env", values)
            return Resolved(replace(spec, env=env), names)
        case _:
            return Resolved(spec)


def with_version(
    secret: Secret | None, name: str, version: SecretVersion, *, in_use: Iterable[int] = ()
) -> Secret:
    """Adds the version. The newest VERSIONS_MAX and those in use are kept."""
    versions = (*(secret.versions if secret is not None else ()), version)
    kept = {one.number for one in versions[-VERSIONS_MAX:]} | set(in_use)
    return Secret(name, tuple(one for one in versions if one.number in kept))


def values_of(order: Order) -> frozenset[str]:
    """The secret values of an order, which no text may show."""
    match order.spec:
        case ContainerSpec() as spec:
            contents = (file.content for file in spec.files if file.secret)
            texts = {content.decode("utf-8", "replace").strip() for content in contents}
            return frozenset(texts) | _named(spec.env, order.secret_env)
        case ComposeSpec() as spec:
            return _named(spec.env, order.secret_env)
        case _:
            return frozenset()


class SecretValues(Struct, frozen=True):
    """The values of secrets in an order, stored separately."""

    env: dict[str, str] = {}
    files: dict[int, bytes] = {}  # by the index of the file

    def __bool__(self) -> bool:
        return bool(self.env or self.files)


def take_out(order: Order) -> tuple[Order, SecretValues]:
    """The order with empty values in place of secrets, and the secret values."""
    spec = order.spec
    if not isinstance(spec, ContainerSpec | ComposeSpec):
        return order, SecretValues()
    values = SecretValues(
        {name: spec.env[name] for name in order.secret_env if spec.env.get(name)},
        {
            index: file.content
            for index, file in enumerate(spec.files if isinstance(spec, ContainerSpec) else ())
            if file.secret and file.content
        },
    )
    if not values:
        return order, values
    empty = SecretValues(dict.fromkeys(values.env, ""), dict.fromkeys(values.files, b""))
    return put_back(order, empty), values


def put_back(order: Order, values: SecretValues) -> Order:
    spec = order.spec
    match spec:
        case ContainerSpec():
            files = tuple(
                replace(file, content=values.files.get(index, file.content))
                for index, file in enumerate(spec.files)
            )
            return replace(order, spec=replace(spec, env={**spec.env, **values.env}, files=files))
        case ComposeSpec():
            return replace(order, spec=replace(spec, env={**spec.env, **values.env}))
        case _:
            return order


def redacted(text: str, values: Iterable[str]) -> str:
    """The text with the values redacted, whole or in part.

    A value of several lines is also matched line by line, joined by spaces and with escaped line breaks, as
    in messages and logs. A value that is truncated at the start or end of the text is matched too.
    """
    forms = {form for value in values for form in _forms(value)}
    for form in sorted(forms, key=len, reverse=True):  # one may contain another
        text = text.replace(form, REDACTED)
    for form in forms:
        text = _without_cut(text, form)
    return text


def _forms(value: str) -> Iterator[str]:
    whole = value.strip()
    if len(whole) >= REDACTED_FROM_LENGTH and whole.strip("*"):
        yield whole
    lines = [line.strip() for line in whole.splitlines()]
    if len(lines) > 1:
        yield " ".join(whole.split())
        yield "\\n".join(lines)
        yield "\\r\\n".join(lines)
        yield from (line for line in lines if len(line) >= REDACTED_LINE_FROM_LENGTH)


def _without_cut(text: str, form: str) -> str:
    """Redact a suffix of the form at the start of the text, and a prefix of it at the end."""
    longest = min(len(form) - 1, len(text), REDACTED_CUT_LENGTH_MAX)
    for length in range(longest, REDACTED_LINE_FROM_LENGTH - 1, -1):
        if text.startswith(form[-length:]):
            text = REDACTED + text[length:]
            break
    for length in range(longest, REDACTED_LINE_FROM_LENGTH - 1, -1):
        if text.endswith(form[:length]):
            return text[: len(text) - length] + REDACTED
    return text


def _places(spec: Spec) -> Iterator[tuple[str, str]]:
    match spec:
        case ContainerSpec():
            yield from _places_in_env(spec.env, "spec.container.env")
            for index, file in enumerate(spec.files):
                if file.content.startswith(_SCHEME):
                    text = file.content.decode("utf-8", "replace")
                    yield f"spec.container.files[{index}].content", text
        case ComposeSpec():
            yield from _places_in_env(spec.env, "spec.compose.env")
        case _:
            return


def _places_in_env(env: Mapping[str, str], path: str) -> Iterator[tuple[str, str]]:
    for name, value in env.items():
        if is_reference(value):
            yield f"{path}[{name!r}]", value


def _env(
    env: Mapping[str, str], path: str, values: Mapping[Reference, bytes]
) -> tuple[dict[str, str], tuple[str, ...]]:
    found = dict(env)
    names = tuple(sorted(name for name, value in env.items() if is_reference(value)))
    for name in names:
        field = f"{path}[{name!r}]"
        found[name] = _text(values[parse(env[name], field)], field)
    return found, names


def _text(value: bytes, field: str) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidError(
            field, "the value of the secret is not valid UTF-8 text: expected text, or use a file"
        )
    return text


def _file(file: FileMount, field: str, values: Mapping[Reference, bytes]) -> FileMount:
    if not file.content.startswith(_SCHEME):
        return replace(file, mode=file.mode or PLAIN_MODE)
    content = values[parse(file.content.decode("utf-8", "replace"), field)]
    return replace(file, content=content, mode=file.mode or SECRET_MODE, secret=True)


def _named(env: Mapping[str, str], names: Iterable[str]) -> frozenset[str]:
    return frozenset(env[name] for name in names if name in env)


def _is_path(path: str) -> bool:
    segments = path.split("/")
    return (
        len(path) <= _PATH_LENGTH_MAX
        and _PATH.fullmatch(path) is not None
        and not {".", ".."} & set(segments)
    )


def _wrong(field: str) -> InvalidError:
    return InvalidError(
        field,
        "invalid reference to a secret: expected the whole value to be secret://NAME, "
        "secret://NAME@VERSION or secret://vault/PATH#FIELD",
    )
