"""Commands of Docker, kubectl, Nomad and virsh, rewritten to commands of persysctl; and suggestions.

The parser rewrites the command line with these tables before it parses it, so help, completion and the manual
describe only the command itself. A word without an equal command is in `HINTS`: the error names what to use.

- `TYPES`: words for a group, as in `get nodes`, `describe node/n1`, `container ls` and `svc ls`
- `VERBS`: words for a command of a group, as in `volume rm`; `get`, `ls` and `describe` list or show
- `ALIASES`: all other words, with the command that replaces them
"""

from collections.abc import Mapping, Sequence

from persys.cli.framework.arguments import GLOBAL, Argument
from persys.cli.framework.command_table import GROUPS, SINGLES

_WORKLOAD, _SET, _JOB = "workload", "set", "job"
TYPES: Mapping[str, tuple[str, ...]] = {
    _WORKLOAD: (
        *("workload", "workloads", "all", "pod", "pods", "po", "alloc"),
        *("container", "containers", "stack", "stacks", "vm", "vms"),
    ),
    _SET: (
        *("set", "sets", "deployment", "deployments", "deploy"),
        *("replicaset", "replicasets", "rs", "statefulset", "statefulsets", "sts"),
        *("daemonset", "daemonsets", "ds"),
    ),
    _JOB: ("job", "jobs", "cronjob", "cronjobs", "cj"),
    "service": ("service", "services", "svc", "endpoints", "ep"),
    "node": ("node", "nodes", "no"),
    "secret": ("secret", "secrets"),
    "volume": ("volume", "volumes", "pv", "pvc"),
    "image": ("image", "images"),
    "token": ("token", "tokens"),
    "nodepool": ("nodepool", "nodepools"),
    "certificate": ("certificate", "certificates"),
    "context": ("context", "contexts"),
    "federation": ("federation", "federations"),
    "suggestion": ("suggestion", "suggestions"),
    "record": ("record", "records"),
    "drift": ("drift", "drifts"),
    "orphans": ("orphan", "orphans"),
}
# Verbs that list, or with an operand show it.
_SHOW = frozenset({"get", "list", "ls", "ps", "status", "describe", "inspect", "show"})
# Other verbs; the first command that the group has is used.
VERBS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("rm", "remove", "delete"), ("delete", "remove", "revoke")),
    "create": ("create", "put", "add"),
    "set": ("put",),
    "reboot": ("restart",),
    "shutdown": ("stop",),
}
ALIASES: Mapping[str, str] = {
    "ps": "workload list",
    "ls": "workload list",
    "list": "workload list",
    "get": "workload list",
    "get WORKLOAD": "workload get",
    "status": "workload list",
    "status WORKLOAD": "workload get",
    "describe": "workload get",
    "inspect": "workload get",
    "show": "workload get",
    "dominfo": "workload get",
    "delete": "workload delete",
    "remove": "workload delete",
    "rm": "workload delete",
    "start": "workload start",
    "stop": "workload stop",
    "shutdown": "workload stop",
    "restart": "workload restart",
    "reboot": "workload restart",
    "rollout restart": "workload restart",
    "service scale": "scale",
    "service logs": "logs",
    "service update": "edit",
    "service rollback": "rollout undo",
    "deployment promote": "rollout promote",
    "deployment pause": "rollout pause",
    "deployment resume": "rollout resume",
    "deployment fail": "rollout undo",
    "job promote": "rollout promote",
    "job history": "rollout history",
    "job revert": "rollout undo",
    "job dispatch": "job run",
    "job stop": "workload stop",
    "job restart": "workload restart",
    "redeploy": "workload redeploy",
    "retry": "workload retry",
    "create": "apply",
    "replace": "apply",
    "job plan": "plan -f",
    "diff": "plan",
    "log": "logs",
    "get events": "events",
    "top nodes": "top",
    "top workloads": "top",
    "top pods": "top",
    "rmi": "image remove",
    "cordon": "node cordon",
    "uncordon": "node uncordon",
    "drain": "node drain",
    "taint": "node taint",
    "whoami": "cluster whoami",
    "auth whoami": "cluster whoami",
    "info": "cluster summary",
    "cluster-info": "cluster summary",
    "server members": "cluster summary",
    "config get-contexts": "context list",
    "config use-context": "context use",
    "config current-context": "context show",
    "config view": "context show",
}
# Words without an equal command: what to use instead. The text after a comma is advice.
HINTS: Mapping[str, str] = {
    "autoscale": "edit SET, and add `scale` with min, max and cpu",
    "up": "apply -f FILE",
    "down": "delete -f FILE",
    "deploy": "apply -f FILE",
    "compose": "apply -f docker-compose.yml",
    "kill": "workload stop WORKLOAD",
    "destroy": "workload stop WORKLOAD, or `workload delete` to remove it with its data",
    "undefine": "workload delete WORKLOAD",
    "pause": "workload stop WORKLOAD, or `rollout pause` for the update of a set",
    "rename": "run NAME --image IMAGE, because the id of a workload cannot change",
    "patch": "edit WORKLOAD",
    "label": "edit WORKLOAD",
    "annotate": "edit WORKLOAD",
    "expose": "init service, and apply -f service.yaml",
    "port": "workload list -o wide",
    "attach": "logs WORKLOAD --follow, or `console` for a VM",
    "wait": "workload get WORKLOAD --watch",
    "history": "rollout history SET, or `events --workload WORKLOAD`",
    "revert": "rollout undo SET",
    "undo": "rollout undo SET",
    "rollback": "rollout undo SET",
    "pull": "image add NAME SOURCE, for VM images; containers pull their image themselves",
    "join": "token create --role agent --name NODE, then `persys-agent join` on that machine",
    "login": "context add NAME",
    "config": "context list",
    "use": "context use CONTEXT",
    "namespace": "context list, because there are no namespaces",
    "system": "agent gc",
    "prune": "agent gc --dry-run",
    "monitor": "events --watch",
}
# Options of the list commands of other programs: all workloads are listed, and there are no namespaces.
_LIST_OPTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("-a", "--all", "-A", "--all-namespaces"), ()),
    **dict.fromkeys(("-q", "-aq", "-qa", "--quiet"), ("-o", "name")),
}
# `docker rm -f`; for other commands -f is a file.
_FORCE: Mapping[str, tuple[str, ...]] = {"-f": (), "--force": ()}

_SIMILARITY = 0.7

_WITH_VALUE = frozenset(name for each in GLOBAL if each.takes_value for name in each.names)
# Options with a value that may stand between the words of an alias.
_ALSO_WITH_VALUE = frozenset(
    (
        *("-f", "--file", "--node", "--status", "--workload", "-c", "--service", "--image"),
        *("--replicas", "--to", "--to-revision", "--revision"),
    )
)
_COMMANDS: Mapping[str, frozenset[str]] = {
    group.name: frozenset([each.name for each in group.commands]) for group in GROUPS
}
_SINGLES = frozenset([each.name for each in SINGLES])
_GROUP_OF = {word: group for group, words in TYPES.items() for word in words}
# Commands without a group whose operand is a workload, set or job.
_OF_WORKLOADS = frozenset(
    ("console", "edit", "exec", "explain", "logs", "port-forward", "scale", "stats")
)
# Groups whose words may precede such an operand, as in `logs pod/web`.
_OWNERS = (_WORKLOAD, _SET, _JOB)
_ROLLOUT = "rollout"
# Commands of kubectl that also take the word and the name apart, as in `scale deployment web`.
_WITH_TYPE_APART = ("scale", _ROLLOUT)
# `nomad job run` takes a file; `job run` takes the name of a job.
_JOB_FILES = (".yaml", ".yml", ".json", ".nomad", ".hcl")


def rewrite(words: Sequence[str]) -> list[str]:
    """The command line with its alias replaced, if it has one."""
    line = list(words)
    at = operand_at(line)
    if at is None:
        return line
    first, second_at = line[at], operand_at(line, at + 1)
    second = "" if second_at is None else line[second_at]
    if second_at is not None and first == _JOB and second == "run":
        third_at = operand_at(line, second_at + 1)
        if third_at is not None and line[third_at].endswith(_JOB_FILES):
            del line[second_at]
            return _replaced(line, at, "apply -f")
    if second_at is not None and (command := ALIASES.get(f"{first} {second}")):
        del line[second_at]
        return _replaced(line, at, command)
    if first in _SINGLES:
        return _without_type(line, second_at) if first in _OF_WORKLOADS else line
    if first == _ROLLOUT and second_at is not None:
        return _without_type(line, operand_at(line, second_at + 1))
    if first in _GROUP_OF or first in _COMMANDS:
        return _type_first(line, at, second_at)
    if second_at is not None and (group := _GROUP_OF.get(second.partition("/")[0])):
        return _verb_first(line, at, second_at, group)
    command = ALIASES.get(f"{first} WORKLOAD") if second else None
    return _replaced(line, at, command or ALIASES.get(first, first), dropped=_dropped(first))


def operand_at(line: Sequence[str], start: int = 0) -> int | None:
    """The index of the first word from `start` on that is neither an option nor the value of one."""
    value_follows = False
    for at, word in enumerate(line[start:], start):
        if value_follows:
            value_follows = False
        elif word.startswith("-") and word != "-":
            value_follows = word in _WITH_VALUE or (start > 0 and word in _ALSO_WITH_VALUE)
        else:
            return at
    return None


def _type_first(line: list[str], at: int, second_at: int | None) -> list[str]:
    """`node ls`, `nodes`, `container rm web`, `job status web`, `alloc logs web`."""
    group = _GROUP_OF.get(line[at], line[at])
    if second_at is None:
        return line if line[at] in _COMMANDS else _replaced(line, at, f"{group} list")
    word = line[second_at]
    if word in _COMMANDS[group]:
        return _replaced(line, at, group)
    if group in _OWNERS and word in _SINGLES:
        del line[at]
        return _without_type(line, operand_at(line, second_at))
    operand = operand_at(line, second_at + 1)
    verb = _verb(group, word, has_operand=operand is not None)
    del line[second_at]
    return _replaced(line, at, f"{group} {verb or word}", dropped=_dropped(word))


def _verb_first(line: list[str], at: int, second_at: int, group: str) -> list[str]:
    """`get nodes`, `describe node n1`, `delete secret/db-password`."""
    _, slash, name = line[second_at].partition("/")
    operand = second_at if slash else operand_at(line, second_at + 1)
    verb = _verb(group, line[at], has_operand=operand is not None)
    if not verb:
        return line
    line[second_at : second_at + 1] = [name] if slash else []
    return _replaced(line, at, f"{group} {verb}", dropped=_dropped(line[at]))


def _verb(group: str, word: str, *, has_operand: bool) -> str:
    """The command of the group, or "" if it has none for this word."""
    known = _COMMANDS[group]
    if word in _SHOW:
        chosen: tuple[str, ...] = ("get", "show", "list") if has_operand else ("list",)
    else:
        chosen = (word, *VERBS.get(word, ()))
    return next((each for each in chosen if each in known), "")


def _replaced(
    line: list[str], at: int, command: str, *, dropped: Mapping[str, tuple[str, ...]] | None = None
) -> list[str]:
    """Replace the word at `at`. An option at the end of the command is put before the next operand."""
    new = command.split()
    rest = line[at + 1 :]
    if new[-1].startswith("-"):
        operand = operand_at(rest)
        rest.insert(len(rest) if operand is None else operand, new.pop())
    changed = _LIST_OPTIONS if new[-1] == "list" else dropped or {}
    rest = [word for each in rest for word in changed.get(each, (each,))]
    if new[0] in (*_OWNERS, _ROLLOUT):
        rest = _without_types(rest)
    return [*line[:at], *new, *rest] if new != [line[at]] else line


def _dropped(word: str) -> Mapping[str, tuple[str, ...]]:
    return _FORCE if word == "rm" else {}


def _without_types(rest: list[str]) -> list[str]:
    """`delete pod/web pod/db` is `delete web db`. The operands of the line are after its command."""
    line = ["", *rest]
    at = operand_at(line, 1)
    while at is not None:
        _without_type(line, at)
        at = operand_at(line, at + 1)
    return line[1:]


def _without_type(line: list[str], at: int | None) -> list[str]:
    """`logs pod/web` is `logs web`, and `scale deployment web` is `scale web`."""
    if at is None:
        return line
    kind, slash, name = line[at].partition("/")
    after = operand_at(line, at + 1)
    if _GROUP_OF.get(kind) not in _OWNERS:
        return line
    if slash:
        line[at] = name
    elif after is not None and not line[after].isdigit() and {*line[:at]} & {*_WITH_TYPE_APART}:
        del line[at]
    return line


def spellings() -> dict[str, list[str]]:
    """What may be typed for each command, for the help, the manual and the completion."""
    found: dict[str, list[str]] = {}
    for typed, command in ALIASES.items():
        found.setdefault(command, []).append(typed)
    for group, (one, many, *_) in TYPES.items():
        plural = () if many in _COMMANDS else (many,)
        found.setdefault(f"{group} list", []).extend((*plural, f"get {many}", f"{group} ls"))
        for verb, forms in (("get", ("get {0}/ID", "describe {0} ID")), ("rm", ("delete {0} ID",))):
            command = f"{group} {_verb(group, verb, has_operand=True)}"
            if not command.endswith(" list") and _operands(command) == 1:
                found.setdefault(command, []).extend(form.format(one) for form in forms)
    return found


def next_words(before: Sequence[str]) -> dict[str, str]:
    """Words of aliases that may follow, with a description, for the completion."""
    at = operand_at(before)
    if at is None:
        first = {typed: command for typed, command in ALIASES.items() if " " not in typed}
        return {typed: f"alias of `{command}`" for typed, command in first.items()}
    if operand_at(before, at + 1) is not None:
        return {}
    words = [phrase.split() for phrase in ALIASES if phrase.startswith(f"{before[at]} ")]
    found = {second: f"alias of `{ALIASES[f'{first} {second}']}`" for first, second in words}
    found.pop("WORKLOAD", None)
    if before[at] in _SHOW or before[at] in VERBS:
        found |= {f"{many}": f"alias of `{group} list`" for group, (_, many, *_) in TYPES.items()}
    return found


def unknown_command(prog: str, word: str, known: Sequence[str]) -> str:
    """The error for an unknown command `word` of `prog`, which is `persysctl` or one of its groups."""
    error = f"unknown command {word!r}"
    in_group = " " in prog
    if not in_group and (hint := HINTS.get(word)):
        command, comma, advice = hint.partition(",")
        return f"{error}; use `{prog} {command}`{comma}{advice}"
    names = [*known] if in_group else [*known, *(each for each in ALIASES if " " not in each)]
    if near := _closest(word, names):
        return f"{error}; did you mean `{prog} {near}`?"
    return f"{error}; `{prog} --help` lists all commands"


def unknown_words(command: str, words: Sequence[str]) -> str:
    """The error for options and operands that a command does not have."""
    word = next((each for each in words if each.startswith("-")), words[0])
    kind = "option" if word.startswith("-") else "argument"
    name = word.partition("=")[0]
    arguments = _arguments_of(command)
    options = [name for each in (*arguments, *GLOBAL) for name in each.names]
    near = _closest(name, [each for each in options if each.startswith("--")])
    hint = f"; did you mean {near}?" if near and kind == "option" else ";"
    if kind == "argument" and any(each.names == ("command",) for each in arguments):
        hint = "; put the command after --, as in `-- ls -l`;"
    return f"unknown {kind} {name!r} of `{command}`{hint} `persysctl {command} --help` lists its options"


def _arguments_of(command: str) -> tuple[Argument, ...]:
    group, _, name = command.rpartition(" ")
    rows = next((each.commands for each in GROUPS if each.name == group), SINGLES)
    return next(each.arguments for each in rows if each.name == name)


def _operands(command: str) -> int:
    if command.endswith(" "):
        return 0
    return sum(not each.is_option for each in _arguments_of(command))


def _closest(word: str, known: Sequence[str]) -> str:
    import difflib  # only for an error: start-up time

    near = difflib.get_close_matches(word, known, n=1, cutoff=_SIMILARITY)
    return near[0] if near else ""
