"""Runs the checks of `persysctl doctor`, from this host to the cluster; skips checks that cannot run."""

import sys
from argparse import Namespace
from collections.abc import Iterator

from persys.cli.connect.clients import scheduler_client
from persys.cli.connect.settings import Settings, Transport
from persys.cli.doctor.cluster import check_cluster
from persys.cli.doctor.connection import (
    GET_CERTIFICATE,
    RENEW_CREDENTIALS,
    check_certificate,
    check_context,
    check_endpoint,
)
from persys.cli.doctor.finding import Finding, Level, fail
from persys.cli.doctor.host import check_host
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.output import dump
from persys.errors import DeniedError, PersysError, SettingsError, UnavailableError
from persys.infra.clock import SystemClock

_WIDTH = 6
_INVALID_CREDENTIAL = "token"  # the reason of a denial


def run(options: Namespace) -> ExitCode:
    """Exit code 1 if a check fails."""
    findings: list[Finding] = []
    shown = options.output not in ("json", "yaml", "name")
    for finding in _findings(options):
        findings.append(finding)
        if shown:
            _print(finding)
    if options.output in ("json", "yaml"):
        print(
            dump(
                [finding._asdict() | {"level": str(finding.level)} for finding in findings],
                options.output,
            )
        )
    elif options.output == "name":
        print("\n".join(sorted({each.check for each in findings if each.level is not Level.OK})))
    else:
        _print_summary(findings)
    failed = any(finding.level is Level.FAIL for finding in findings)
    return ExitCode.FAILED if failed else ExitCode.OK


def _findings(options: Namespace) -> Iterator[Finding]:
    found, settings = check_context(options)
    yield from found
    if settings is None:
        return
    credentials = list(check_certificate(options, settings, SystemClock().now()))
    yield from credentials
    reached = check_endpoint(options, settings)
    yield from reached
    # Otherwise the reason is known already.
    usable = all(finding.level is not Level.FAIL for finding in credentials)
    if usable and any(finding.level is not Level.FAIL for finding in reached):
        yield from _cluster_findings(options, settings)
    yield from check_host(options, settings)


def _cluster_findings(options: Namespace, settings: Settings) -> Iterator[Finding]:
    try:
        with scheduler_client(options, quiet=True) as client:
            yield from check_cluster(client)
    except PersysError as err:
        yield fail("cluster", str(err).partition("\n")[0], _fix(err, settings))


def _fix(err: PersysError, settings: Settings) -> str:
    match err:
        case DeniedError() if err.reason == _INVALID_CREDENTIAL or settings.token:
            return RENEW_CREDENTIALS
        case DeniedError():
            return f"`persysctl cluster whoami` shows your identity; {GET_CERTIFICATE}"
        case SettingsError():
            return "`persysctl help connection` shows the options; save them with `persysctl context add`"
        case UnavailableError() if settings.transport is Transport.HTTP:
            return (
                "on the host of the gateway: `systemctl status persys-gateway`; for a certificate that is "
                "not trusted, use the CA of the cluster: `persysctl context add NAME --api URL --ca FILE`"
            )
        case _:
            return "on the host of the scheduler: `systemctl status persys-scheduler`, and its log"


def _print(finding: Finding) -> None:
    print(f"{finding.level:<{_WIDTH}}{finding.check}: {finding.what}")
    if finding.cure:
        print(f"{'':<{_WIDTH}}fix: {finding.cure}")
    sys.stdout.flush()  # the next check may take a while


def _print_summary(findings: list[Finding]) -> None:
    failed = sum(finding.level is Level.FAIL for finding in findings)
    warned = sum(finding.level is Level.WARN for finding in findings)
    problems = "1 problem" if failed == 1 else f"{failed} problems"
    warnings = "1 warning" if warned == 1 else f"{warned} warnings"
    print(f"{problems}, {warnings}" if failed or warned else "no problems found")
