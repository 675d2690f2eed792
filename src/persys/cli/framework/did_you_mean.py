"""Suggests a command in place of an unknown one.

Commands of Docker, kubectl and Nomad map to the equivalent command; other words to the closest match.
"""

import difflib
from collections.abc import Sequence

# By the word that was typed in place of a group or a command.
_INSTEAD = {
    "ps": "workload list",
    "ls": "workload list",
    "list": "workload list",
    "status": "workload list",
    "workloads": "workload list",
    "get": "workload get WORKLOAD",
    "describe": "workload get WORKLOAD",
    "inspect": "workload get WORKLOAD",
    "show": "workload get WORKLOAD",
    "delete": "workload delete WORKLOAD",
    "rm": "workload delete WORKLOAD",
    "remove": "workload delete WORKLOAD",
    "kill": "workload stop WORKLOAD",
    "stop": "workload stop WORKLOAD",
    "start": "workload start WORKLOAD",
    "restart": "workload redeploy WORKLOAD",
    "redeploy": "workload redeploy WORKLOAD",
    "rollout": "workload redeploy WORKLOAD",
    "retry": "workload retry WORKLOAD",
    "run": "apply -f FILE",
    "create": "apply -f FILE",
    "up": "apply -f FILE",
    "deploy": "apply -f FILE",
    "diff": "plan -f FILE",
    "scale": "apply -f FILE, with one workload per replica",
    "attach": "logs WORKLOAD --follow",
    "log": "logs WORKLOAD",
    "nodes": "node list",
    "cordon": "node cordon NODE",
    "uncordon": "node uncordon NODE",
    "drain": "node drain NODE",
    "taint": "node taint NODE KEY[=VALUE]",
    "join": "token create --role agent --name NODE, then `persys-agent join` on that machine",
    "images": "image list",
    "pull": "image add NAME SOURCE",
    "volumes": "volume list",
    "secrets": "secret list",
    "nodepools": "nodepool list",
    "tokens": "token list",
    "login": "context add NAME",
    "config": "context list",
    "whoami": "cluster whoami",
    "info": "cluster summary",
    "help": "--help",
}
_VERBS = {"ls": "list", "rm": "delete", "remove": "delete", "describe": "get", "show": "get"}


def unknown_command(prog: str, word: str, known: Sequence[str]) -> str:
    """The error for an unknown command `word` of `prog`, which is `persysctl` or one of its groups."""
    error = f"unknown command {word!r}"
    instead = _instead(prog, word, known)
    if instead:
        command, comma, more = instead.partition(",")
        return f"{error}; did you mean `{prog} {command}`{comma}{more}?"
    return f"{error}; `{prog} --help` lists all commands"


def _instead(prog: str, word: str, known: Sequence[str]) -> str:
    if " " not in prog:
        near = difflib.get_close_matches(word, [*known, *_INSTEAD], n=1, cutoff=0.75)
        found = near[0] if near else ""
        return _INSTEAD.get(word) or _INSTEAD.get(found, found)
    if (verb := _VERBS.get(word)) in known:
        return str(verb)
    near = difflib.get_close_matches(word, known, n=1)
    return near[0] if near else ""
