"""The runs of all jobs: by `<job>/<run>`, as they are stored, and by job."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from persys.model.job import Run

_NONE: Mapping[str, Run] = MappingProxyType({})


def run_name(run: Run) -> str:
    """`<job>/<run>`."""
    return f"{run.job_id}/{run.run_id}"


class Runs:
    def __init__(self) -> None:
        self._by_job: dict[str, dict[str, Run]] = {}
        self._count = 0

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __len__(self) -> int:
        return self._count

    def get(self, name: str) -> Run | None:
        job_id, _, run_id = name.partition("/")
        return self._by_job.get(job_id, _NONE).get(run_id)

    def of(self, job_id: str) -> Collection[Run]:
        return self._by_job.get(job_id, _NONE).values()

    def job_ids(self) -> Collection[str]:
        """Jobs with runs, also those whose own record does not exist."""
        return self._by_job.keys()

    def all(self) -> Iterable[Run]:
        return (run for runs in self._by_job.values() for run in runs.values())

    def put(self, run: Run) -> None:
        runs = self._by_job.setdefault(run.job_id, {})
        self._count += run.run_id not in runs
        runs[run.run_id] = run

    def drop(self, name: str) -> None:
        job_id, _, run_id = name.partition("/")
        runs = self._by_job.get(job_id)
        if runs is None or runs.pop(run_id, None) is None:
            return
        self._count -= 1
        if not runs:
            del self._by_job[job_id]
