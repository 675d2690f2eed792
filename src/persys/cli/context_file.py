"""~/.persys/config.yaml: the contexts of a user, each the flat keys by which one cluster is reached.

Keys at the top are the context `default`, so the file of an older command line is one too. What is not
known here is kept as it is when the file is written; so are the comments at its head, but no others.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from persys.errors import InvalidError, NotFoundError, SettingsError

DEFAULT = "default"
CURRENT_KEY = "current_context"
CONTEXTS_KEY = "contexts"
_OF_OTHERS = 0o077


class ContextFile(NamedTuple):
    content: Mapping[str, object]
    comments: str = ""

    @property
    def current(self) -> str:
        return str(self.content.get(CURRENT_KEY) or DEFAULT)

    @property
    def named(self) -> Mapping[str, Mapping[str, object]]:
        """Every context by its name. `default` is there when it says anything, or when nothing else does."""
        own = {key: value for key, value in self.content.items() if key not in _OURS}
        contexts = _mapping(self.content.get(CONTEXTS_KEY) or {}, CONTEXTS_KEY)
        found = {
            str(name): _mapping(keys or {}, f"{CONTEXTS_KEY}.{name}")
            for name, keys in contexts.items()
        }
        return found if DEFAULT in found or (found and not own) else {DEFAULT: own, **found}

    def keys_of(self, name: str) -> Mapping[str, object]:
        if name not in self.named:
            if name == DEFAULT:
                return {}
            raise NotFoundError("context", f"{name}; there are {', '.join(sorted(self.named))}")
        return self.named[name]

    def using(self, name: str) -> "ContextFile":
        self.keys_of(name)
        return self._replace(content={**self.content, CURRENT_KEY: name})

    def with_context(self, name: str, keys: Mapping[str, object]) -> "ContextFile":
        """Its other keys, if it is there already, stay."""
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
                "context", f"{name} is in use; `persysctl context use` another first"
            )
        contexts = _mapping(self.content.get(CONTEXTS_KEY) or {}, CONTEXTS_KEY)
        if name == DEFAULT and DEFAULT not in contexts:
            return self._replace(content={k: v for k, v in self.content.items() if k in _OURS})
        kept = {other: keys for other, keys in contexts.items() if other != name}
        return self._replace(content={**self.content, CONTEXTS_KEY: kept})


_OURS = frozenset({CURRENT_KEY, CONTEXTS_KEY})


def context_path() -> Path:
    return Path.home() / ".persys" / "config.yaml"


def read_contexts() -> ContextFile:
    """Empty when there is no file. Raises SettingsError for one that cannot be used."""
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
    _ = found.named  # what is not a mapping is said now
    return found


def write_contexts(file: ContextFile) -> None:
    """Whole or not at all, for its owner alone. Raises SettingsError."""
    from persys.core.bounded_yaml import dump
    from persys.infra.files import write_whole

    path = context_path()
    text = file.comments + dump(_plain(file.content))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path.resolve(), text.encode())  # a link stays one
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err


def wide_open() -> str:
    """What to say when others than its owner can read or write the file; else nothing."""
    path = context_path()
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if not mode & _OF_OTHERS:
        return ""
    return (
        f"{path} can be read by others (mode {mode & 0o777:o}); `chmod 600 {path}` keeps it yours"
    )


def _mapping(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise SettingsError(f"{what}: expected a mapping of settings")
    return value


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
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
        raise InvalidError("context", f"{name!r}: letters, digits, '-', '_' and '.' make a name")
