"""Text, default and example of every field of sets and jobs, in the order of the reference."""

from collections.abc import Mapping

from persys.core.jobs import checks as job_checks
from persys.core.sets import checks as set_checks
from persys.model import job as jobs
from persys.model import sets
from persys.wire.schema.descriptions import DURATION_PATTERN, PERCENT_PATTERN, Field
from persys.wire.specfile import set_file

SET: Mapping[str, Field] = {
    "kind": Field("may be omitted if one of the other keys is given", "set", choices=("set",)),
    "replicas": Field(
        "number of members; not set: 1 for a new set, else unchanged",
        3,
        least=0,
        most=sets.REPLICAS_MAX,
    ),
    "every": Field(
        "`node`: one member on each node that matches the constraints, instead of `replicas`",
        "node",
        choices=set_file.EVERY,
    ),
    "update": Field(
        "how members are replaced when the template changes", {"max_parallel": 2, "canary": 1}
    ),
    "scale": Field("automatic scaling", {"min": 2, "max": 10, "cpu": "70%"}),
}

UPDATE: Mapping[str, Field] = {
    "max_parallel": Field(
        "members that are updated at the same time", 2, 1, least=1, most=sets.REPLICAS_MAX
    ),
    "order": Field(
        "`start-first`: the new member is healthy before the old one is removed; `in-place`: the member "
        "is stopped, changed and started; default: `start-first` without data and fixed host ports",
        "in-place",
        choices=tuple(order.value for order in sets.UpdateOrder),
    ),
    "min_healthy": Field(
        "a new member must be healthy for this time", "30s", "10s", pattern=DURATION_PATTERN
    ),
    "healthy_deadline": Field(
        "the update of a member fails if it is not healthy by then",
        "2m",
        "5m",
        pattern=DURATION_PATTERN,
    ),
    "on_failure": Field(
        "what happens to the rollout when a member fails",
        "pause",
        "rollback",
        choices=tuple(action.value for action in sets.OnFailure),
    ),
    "canary": Field(
        "members that are updated first; the rollout then waits for `persysctl rollout promote`",
        1,
        0,
        least=0,
        most=sets.REPLICAS_MAX,
    ),
    "bake": Field(
        "promote automatically after this time with healthy canary members",
        "10m",
        pattern=DURATION_PATTERN,
    ),
}

SCALE: Mapping[str, Field] = {
    "min": Field(
        "lowest number of members", 2, set_file.MIN_DEFAULT, least=1, most=sets.REPLICAS_MAX
    ),
    "max": Field("highest number of members", 10, required=True, least=1, most=sets.REPLICAS_MAX),
    "cpu": Field(
        "target of the average CPU usage, in percent of the reserved CPU",
        "70%",
        pattern=PERCENT_PATTERN,
        least=1,
        most=set_checks.PERCENT_MAX,
    ),
    "memory": Field(
        "target of the average memory usage, in percent of the reserved memory",
        "80%",
        pattern=PERCENT_PATTERN,
        least=1,
        most=set_checks.PERCENT_MAX,
    ),
    "prometheus": Field(
        "target of a query",
        {"url": "http://prometheus:9090", "query": "sum(rate(requests[1m]))", "target": 100},
    ),
    "cooldown": Field("time between two changes", "5m", "1m", pattern=DURATION_PATTERN),
}

PROMETHEUS: Mapping[str, Field] = {
    "url": Field("URL of the server", "http://prometheus:9090", required=True),
    "query": Field("query with one value", "sum(rate(requests[1m]))", required=True),
    "target": Field("target of the value per member", 100.5, required=True),
}

JOB: Mapping[str, Field] = {
    "kind": Field("may be omitted if one of the other keys is given", "job", choices=("job",)),
    "job": Field("how often and how long members run", {"completions": 4, "parallelism": 2}),
    "schedule": Field("when runs start; not set: only on request", "0 3 * * *"),
}

JOB_OPTIONS: Mapping[str, Field] = {
    "completions": Field("members that must succeed", 4, 1, least=1, most=jobs.COMPLETIONS_MAX),
    "parallelism": Field(
        "members that run at the same time", 2, 1, least=1, most=jobs.PARALLELISM_MAX
    ),
    "retries": Field(
        "how often a member that failed, or was lost with its node, is run again",
        3,
        0,
        least=0,
        most=job_checks.RETRIES_MAX,
    ),
    "deadline": Field("a run fails after this time", "1h", pattern=DURATION_PATTERN),
    "keep": Field(
        "finished runs that are kept, with their logs",
        5,
        jobs.KEEP_DEFAULT,
        least=1,
        most=job_checks.KEEP_MAX,
    ),
    "fail_on": Field(
        "exit codes with which the run fails at once, without retries",
        [64, 65],
        least=1,
        most=job_checks.EXIT_CODE_MAX,
        items_max=job_checks.FAIL_ON_MAX,
    ),
}

SCHEDULE: Mapping[str, Field] = {
    "cron": Field(
        "five fields: minute, hour, day of month, month, day of week", "0 3 * * *", required=True
    ),
    "timezone": Field("name of the time zone database", "Europe/Berlin", "UTC"),
    "overlap": Field(
        "while the last run is in progress, `forbid` skips a run, `replace` cancels the last one",
        "replace",
        "forbid",
        choices=tuple(each.value for each in jobs.Overlap),
    ),
    "start_within": Field(
        "a run that could not start in this time is skipped, for example after an outage",
        "30m",
        "1h",
        pattern=DURATION_PATTERN,
    ),
}
