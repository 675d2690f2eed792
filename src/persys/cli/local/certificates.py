"""The certificates of `persys up`: for its processes and its user, from a local CA.

The CA's keys are on this machine, so certificates are issued in this process, without a request to its port.
Valid certificates are kept; the processes renew theirs themselves.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from persys.ca.cli import is_revoked, run_command
from persys.ca.key_files import ROOTS
from persys.client.grpc.channel import Trust
from persys.core.auth.certificate_renewal import Freshness, freshness
from persys.core.duration import format_duration
from persys.errors import SettingsError
from persys.infra.atomic_files import CertificateFiles
from persys.infra.clock import SystemClock
from persys.infra.net.node_name import own_node_id
from persys.infra.tls.certificates import read_key_pair
from persys.infra.tls.identity import read_claims
from persys.model.identity import Identity, Role

# Only `persys up` renews it, so it must outlast a long break between two runs.
USER_VALIDITY = timedelta(days=365)
_LOCAL = ("127.0.0.1", "localhost")


class LocalCertificates:
    def __init__(self, state_dir: Path, ca_port: int) -> None:
        self.ca_dir = state_dir / "ca"
        self._certs = state_dir / "certs"
        self.ca_environ: Mapping[str, str] = {
            "PERSYS_CA_DIR": str(self.ca_dir),
            "PERSYS_CA_PORT": str(ca_port),
            "PERSYS_CA_LISTEN": "0.0.0.0",
        }

    def files(self, role: Role) -> CertificateFiles:
        folder = self._certs / role
        return CertificateFiles(folder / f"{role}.crt", folder / f"{role}.key", folder / "ca.crt")

    def environ(self, role: Role) -> dict[str, str]:
        files = self.files(role)
        return {
            "PERSYS_TLS_CA": str(files.roots),
            "PERSYS_TLS_CERT": str(files.certificate),
            "PERSYS_TLS_KEY": str(files.key),
            "PERSYS_CA_ADDR": f"127.0.0.1:{self.ca_environ['PERSYS_CA_PORT']}",
        }

    @property
    def trust(self) -> Trust:
        """The TLS settings of the local admin."""
        return Trust(self.files(Role.ADMIN))

    def ensure(self) -> list[str]:
        """Issue missing and expiring certificates; returns their identities. Raises SettingsError."""
        host = socket.gethostname()
        node = own_node_id(os.environ.get("PERSYS_NODE_ID", ""), self._stored_node_id())
        wanted = (
            (Identity(Role.SCHEDULER, host), _LOCAL, None),
            (Identity(Role.AGENT, node), _LOCAL, None),
            (Identity(Role.GATEWAY, host), (*_LOCAL, host), None),
            (Identity(Role.ADMIN, "up"), (), USER_VALIDITY),
        )
        return [
            str(identity)
            for identity, hosts, validity in wanted
            if not self._is_valid(identity) and self._issue(identity, hosts, validity)
        ]

    def _stored_node_id(self) -> str:
        """The node id in the agent's certificate, valid or expired; "" without one."""
        try:
            claims = read_claims(self.files(Role.AGENT).certificate.read_bytes())
        except (OSError, ValueError, SettingsError):
            return ""
        return claims.identity.name if claims.identity is not None else ""

    def _is_valid(self, identity: Identity) -> bool:
        files, now = self.files(identity.role), SystemClock().now()
        try:
            pair = read_key_pair(files, now)
            if (self.ca_dir / ROOTS).read_bytes() not in pair.roots:
                return False  # the CA was recreated
        except (SettingsError, OSError):
            return False
        if is_revoked(pair.claims.serial, {**os.environ, **self.ca_environ}):
            return False  # for example that of a removed node
        left = freshness(pair.claims.not_before, pair.claims.not_after, now)
        renews_itself = identity.role is not Role.ADMIN
        fresh = (Freshness.FRESH, Freshness.DUE) if renews_itself else (Freshness.FRESH,)
        return pair.claims.identity == identity and left in fresh

    def _issue(self, identity: Identity, hosts: Sequence[str], validity: timedelta | None) -> bool:
        words = ["certificate", "--role", identity.role, "--name", identity.name]
        for host in hosts:
            words += ["--host", host]
        if validity is not None:
            words += ["--ttl", format_duration(validity)]
        words += ["--out", str(self._certs / identity.role)]
        run_command(words, {**os.environ, **self.ca_environ})
        return True
