"""Jobs: when an occurrence starts a run, and the attempts of a run. Pure decisions; `scheduler/jobs` acts.

cron.py       the occurrences of a cron expression in a time zone
schedule.py   `due`: the occurrence to start now, and those to skip; jobs and runs after a recovery
situation.py  the input and the output of `decide_run`
members.py    ids and numbers of members, and their intents from the template
indexes.py    sets of indexes as ranges
run.py        `decide_run`: attempts to start, retry and stop, and how the run ends
retries.py    the delay before a retry
changes.py    what users change: apply, suspend, run, cancel, delete; runs that are deleted
checks.py     which jobs are valid

The scheduler, its queries and the simulation call it. It imports model only, and cronsim in cron.py.
"""
