"""The content of /health: degraded while a runtime or the journal does not work."""

from collections.abc import Mapping
from typing import Any

from persys.infra.tls.tls import Tls
from persys.model.ids import NodeId
from persys.model.spec import WorkloadType

OK = "ok"


def health_of(
    node_id: NodeId,
    version: str,
    *,
    answering: Mapping[WorkloadType, bool],
    journal_problem: str,
    scheduler: str,
    workload_count: int,
    tls: Tls | None,
) -> dict[str, Any]:
    """`answering`: whether each runtime of the node responds."""
    works = all(answering.values()) and not journal_problem
    return {
        "status": OK if works else "degraded",
        "service": "persys-agent",
        "version": version,
        "node_id": node_id,
        "runtimes": {
            kind.value: OK if answers else "no answer" for kind, answers in answering.items()
        },
        "journal": journal_problem or OK,
        "scheduler": scheduler,
        "workloads": workload_count,
        **({"certificate": tls.health()} if tls is not None else {}),
    }
