"""Commands for sets with their rollouts, for jobs with their runs, and for services."""

from persys.cli.framework import arguments as arg
from persys.cli.framework.tables.command import Command, Group

_SET = arg.Argument(("id",), {"metavar": "SET", "help": "id of the set"}, "set")
_SETS = arg.Argument(("ids",), {"metavar": "SET", "nargs": "+", "help": "ids of sets"}, "set")
_JOB = arg.Argument(("id",), {"metavar": "JOB", "help": "id of the job"}, "job")
_JOBS = arg.Argument(("ids",), {"metavar": "JOB", "nargs": "+", "help": "ids of jobs"}, "job")
_SERVICE = arg.Argument(("id",), {"metavar": "SERVICE", "help": "id of the service"}, "service")
_SERVICES = arg.Argument(
    ("ids",), {"metavar": "SERVICE", "nargs": "+", "help": "ids of services"}, "service"
)
_RUN = arg.Argument(
    ("run_id",),
    {"metavar": "RUN", "nargs": "?", "default": "", "help": "id of the run (default: the newest)"},
    "run",
)
_RUN_TO_CANCEL = _RUN._replace(
    kwargs={**_RUN.kwargs, "help": "id of the run (default: all in progress)"}
)
_WAIT_FOR_ROLLOUT = arg.WAIT._replace(
    kwargs={
        **arg.WAIT.kwargs,
        "help": "wait until the rollout has ended; the time limit counts from the last progress "
        "(default: 5m)",
    }
)
_WAIT_FOR_RUN = arg.WAIT._replace(
    kwargs={**arg.WAIT.kwargs, "help": "wait until the run has ended (default: 5m)"}
)
_WAIT_FOR_MEMBERS = arg.WAIT._replace(
    kwargs={**arg.WAIT.kwargs, "help": "wait until all members are healthy (default: 5m)"}
)

SET = Group(
    "set",
    "sets: several members from one template",
    (
        Command("list", "list sets", "commands.set:list_sets", (arg.WATCH,)),
        Command(
            "get",
            "show one set, with its rollout and its members",
            "commands.set:get",
            (_SET, arg.WATCH),
        ),
        Command(
            "delete",
            "delete sets with all members",
            "commands.set:delete",
            (_SETS, arg.WAIT),
        ),
    ),
)

SCALE = Command(
    "scale",
    "change the number of members of a set",
    "commands.scale:scale",
    (
        _SET,
        arg.Argument(
            ("count",),
            {"metavar": "N", "nargs": "?", "default": "", "help": "number of members"},
        ),
        arg.Argument(
            ("--replicas",),
            {"metavar": "N", "default": "", "help": "accepted for kubectl: the number of members"},
        ),
        _WAIT_FOR_MEMBERS,
    ),
)

ROLLOUT = Group(
    "rollout",
    "updates of sets to a new revision",
    (
        Command(
            "status",
            "show the rollout of a set, with one line per member",
            "commands.rollout:status",
            (_SET, arg.WATCH, _WAIT_FOR_ROLLOUT),
        ),
        Command("pause", "update no further members", "commands.rollout:pause", (_SET,)),
        Command(
            "resume",
            "continue a paused rollout",
            "commands.rollout:resume",
            (_SET, _WAIT_FOR_ROLLOUT),
        ),
        Command(
            "promote",
            "continue after the canary members",
            "commands.rollout:promote",
            (_SET, _WAIT_FOR_ROLLOUT),
        ),
        Command(
            "undo",
            "go back to an earlier revision",
            "commands.rollout:undo",
            (
                _SET,
                arg.Argument(
                    ("--to", "--to-revision"),
                    {
                        "metavar": "N",
                        "type": int,
                        "help": "number of the revision, as listed by `rollout history` "
                        "(default: the one before)",
                    },
                ),
                _WAIT_FOR_ROLLOUT,
            ),
        ),
        Command(
            "history",
            "list the revisions of a set, or show one as a spec file",
            "commands.rollout:history",
            (
                _SET,
                arg.Argument(
                    ("--revision",),
                    {"metavar": "N", "type": int, "help": "show the spec file of this revision"},
                ),
            ),
        ),
    ),
)

JOB = Group(
    "job",
    "jobs, which run to completion: on request or by a schedule",
    (
        Command("list", "list jobs, with their last run", "commands.job:list_jobs", (arg.WATCH,)),
        Command(
            "get",
            "show one job, with its runs",
            "commands.job:get",
            (_JOB, arg.WATCH),
        ),
        Command("run", "start a run now", "commands.job:run", (_JOB, _WAIT_FOR_RUN)),
        Command(
            "logs",
            "show the output of a run, from all its members",
            "commands.job:logs",
            (_JOB, _RUN, arg.FOLLOW, arg.SINCE, arg.TAIL, arg.TIMESTAMPS, arg.RAW),
        ),
        Command(
            "suspend",
            "start no more runs by the schedule",
            "commands.job:suspend",
            (_JOB,),
        ),
        Command("resume", "follow the schedule again", "commands.job:resume", (_JOB,)),
        Command(
            "cancel",
            "stop runs that are in progress",
            "commands.job:cancel",
            (_JOB, _RUN_TO_CANCEL),
        ),
        Command(
            "delete",
            "delete jobs, with their runs and the logs of them",
            "commands.job:delete",
            (_JOBS,),
        ),
    ),
)

SERVICE = Group(
    "service",
    "services: names with healthy members behind them",
    (
        Command(
            "list",
            "list services, with the number of their endpoints",
            "commands.service:list_services",
            (arg.WATCH,),
        ),
        Command(
            "get",
            "show one service, its endpoints, and why members are not endpoints",
            "commands.service:get",
            (_SERVICE, arg.WATCH),
        ),
        Command(
            "endpoints",
            "list the addresses at which clients reach a service",
            "commands.service:endpoints",
            (_SERVICE, arg.WATCH),
        ),
        Command(
            "delete",
            "delete services; their members continue to run",
            "commands.service:delete",
            (_SERVICES,),
        ),
    ),
)
