"""Certificate metrics of every process that has a certificate."""

from collections.abc import Callable
from typing import Protocol

from prometheus_client import CollectorRegistry, Gauge


class CertificateStatus(Protocol):
    def seconds_left(self) -> float: ...

    def lifetime_seconds(self) -> float: ...

    def revocations_age(self) -> Callable[[], float] | None:
        """The age of the revocation list, or None without a list."""


def register_certificate_metrics(
    registry: CollectorRegistry, process: str, certificate: CertificateStatus
) -> None:
    """Register the gauges. They are evaluated at each scrape."""
    for name, about, seconds in (
        ("expiry", f"Until the {process}'s own certificate ends", certificate.seconds_left),
        (
            "lifetime",
            "From the beginning to the end of that certificate",
            certificate.lifetime_seconds,
        ),
    ):
        gauge = Gauge(f"persys_{process}_certificate_{name}_seconds", about, registry=registry)
        gauge.set_function(seconds)
    if (age := certificate.revocations_age()) is not None:
        about = "Since the list of revoked certificates was last read"
        name = f"persys_{process}_revocations_age_seconds"
        Gauge(name, about, registry=registry).set_function(age)
