"""~/.persys/config.yaml: the contexts of a user, each with the settings of one cluster.

Keys at the top level are the context `default`, so the file of an older CLI is valid too. Unknown keys and
the comments at the head of the file survive a write; other comments do not.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from persys.errors import InvalidError, NotFoundError, SettingsError

DEFAULT = "default"
CURRENT_KEY = "current_context"
CONTEXTS_KEY = "contexts"
_OTHERS_MASK = 0o077


class ContextFile(NamedTuple):
    content: Mapping[str, object]
    comments: str = ""

    @property
    def current(self) -> str:
        return str(self.content.get(CURRENT_KEY) or DEFAULT)

    @property
    def contexts(self) -> Mapping[str, Mapping[str, object]]:
        """Every context by its name. `default` is included if it has keys, or if it is the only one."""
        own = {key: value for key, value in self.content.items() if key not in _OUR_KEYS}
        contexts = _mapping(self.content.get(CONTEXTS_KEY) or {}, CONTEXTS_KEY)
        found = {
            str(name): _mapping(keys or {}, f"{CONTEXTS_KEY}.{name}")
            for name, keys in contexts.items()
        }
        return found if DEFAULT in found or (found and not own) else {DEFAULT: own, **found}

    def keys_of(self, name: str) -> Mapping[str, object]:
        if name not in self.contexts:
            if name == DEFAULT:
                return {}
            raise NotFoundError(
                "context", f"{name}; expected one of {', '.join(sorted(self.contexts))}"
            )
        return self.contexts[name]

    def with_current(self, name: str) -> "ContextFile":
        self.keys_of(name)
        return self._replace(content={**self.content, CURRENT_KEY: name})

    def with_context(self, name: str, keys: Mapping[str, object]) -> "ContextFile":
        """Add a context, or set these keys of an existing one."""
        _check_name(name)
        contexts = _mapping(self.content.get(CONTEXTS_KEY) or {}, CONTEXTS_KEY)
        if name == DEFAULT and DEFAULT not in contexts:
            return self._replace(content={**self.content, **keys})
        merged = {**_mapping(contexts.get(name) or {}, name), **keys}
        content = {**self.content, CONTEXTS_KEY: {**contexts, name: merged}}
        return self._replace(content=content)

    def without(self, name: str) -> "ContextFile":
        self.keys_of(name)
        if name == self.current:
            raise InvalidError(
                "context", f"{name} is the current one; first `persysctl context use` another"
            )
        contexts = _mapping(self.content.get(CONTEXTS_KEY) or {}, CONTEXTS_KEY)
        if name == DEFAULT and DEFAULT not in contexts:
            return self._replace(content={k: v for k, v in self.content.items() if k in _OUR_KEYS})
        others = {other: keys for other, keys in contexts.items() if other != name}
        return self._replace(content={**self.content, CONTEXTS_KEY: others})


_OUR_KEYS = frozenset({CURRENT_KEY, CONTEXTS_KEY})


def context_path() -> Path:
    return Path.home() / ".persys" / "config.yaml"


def read_contexts() -> ContextFile:
    """Empty when there is no file. Raises SettingsError for an invalid one."""
    path = context_path()
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ContextFile({})
    except (OSError, UnicodeDecodeError) as err:
        raise SettingsError(f"{path}: {getattr(err, 'strerror', '') or err}") from err
    from persys.core.bounded_yaml import YamlError, load_mapping  # imported only when needed

    try:
        content = load_mapping(text)
    except YamlError as err:
        raise SettingsError(f"{path}: {err}") from err
    found = ContextFile(content, _comments(text))
    _ = found.contexts  # raises for a context that is not a mapping
    return found


def write_contexts(file: ContextFile) -> None:
    """Replace the file atomically, readable only by its owner. Raises SettingsError."""
    from persys.core.bounded_yaml import dump
    from persys.infra.atomic_files import write_file

    path = context_path()
    text = file.comments + dump(_to_plain(file.content))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path.resolve(), text.encode())  # a symbolic link is kept
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err


def permission_warning() -> str:
    """A warning if users other than the owner can read or write the file, else ""."""
    path = context_path()
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if not mode & _OTHERS_MASK:
        return ""
    return f"{path} is accessible to other users (mode {mode & 0o777:o}); fix it with `chmod 600 {path}`"


def _mapping(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise SettingsError(f"{what}: expected a mapping of settings")
    return value


def _to_plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _to_plain(each) for key, each in value.items()}
    return value


def _comments(text: str) -> str:
    head = ""
    for line in text.splitlines(keepends=True):
        if not line.startswith("#"):
            break
        head += line
    return head


def _check_name(name: str) -> None:
    if not name or not all(each.isalnum() or each in "-_." for each in name):
        raise InvalidError(
            "context", f"invalid name {name!r}: expected letters, digits, '-', '_' and '.'"
        )
