"""Certificates from Vault's PKI engine: our key, Vault's signature.

What would surprise: all names are both in the signed request and beside it, because it is a setting of the
role in Vault which of the two it goes by. What a role does not allow is refused by Vault as a whole; then
the words are Vault's, followed by what the role would have to be like.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from msgspec import Struct

from persys.errors import DeniedError, NotFoundError, RefusedError, UnavailableError
from persys.infra.keys import Issued, host_name
from persys.infra.renewal import CertificateSource
from persys.infra.revocation import serials_in
from persys.infra.rpc import server_name
from persys.infra.vault import Vault
from persys.model.identity import Identity

COMMON_NAME_MAX = 64


class Names(Struct, frozen=True):
    """Everything that a certificate says of its holder."""

    common_name: str
    hosts: tuple[str, ...]  # names of hosts, ours first
    addresses: tuple[str, ...]
    uri: str


def names_of(
    identity: Identity, trust_domain: str, *, service: str, hosts: Sequence[str] = ()
) -> Names:
    """`service` is its common name, unless that is too long for one; `hosts` are names or addresses."""
    fixed = server_name(identity.role), server_name(identity.role, identity.name)
    common = service if len(service) <= COMMON_NAME_MAX else fixed[0]
    parsed = [(host, host_name(host)) for host in hosts]
    addresses = [host for host, name in parsed if isinstance(name, x509.IPAddress)]
    named = [host for host, name in parsed if isinstance(name, x509.DNSName)]
    return Names(
        common_name=common,
        hosts=tuple(dict.fromkeys((*fixed, common, *named))),
        addresses=tuple(dict.fromkeys(addresses)),
        uri=identity.uri(trust_domain),
    )


class VaultSource(CertificateSource):
    def __init__(
        self,
        vault: Vault,
        identity: Identity,
        names: Names,
        *,
        mount: str,
        role: str,
        ttl: timedelta,
        every: timedelta,
    ) -> None:
        """`every`: between tries that fail."""
        self._vault = vault
        self.identity = identity
        self._names = names
        self._mount = mount.strip("/")
        self._role = role
        self._ttl = ttl
        self.every = every

    async def run(self) -> None:
        await self._vault.run()

    def request(self, key: CertificateIssuerPrivateKeyTypes, identity: Identity) -> bytes:
        """For whom the settings say, whoever the certificate before was of."""
        del identity  # the settings may have changed since
        names = self._names
        listed = x509.SubjectAlternativeName(
            [
                *(host_name(host) for host in (*names.hosts, *names.addresses)),
                x509.UniformResourceIdentifier(names.uri),
            ]
        )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names.common_name)])
        return (
            x509.CertificateSigningRequestBuilder(subject)
            .add_extension(listed, critical=False)
            .sign(key, hashes.SHA256())
            .public_bytes(Encoding.PEM)
        )

    async def issue(self, csr_pem: bytes) -> Issued:
        """Raises UnavailableError, DeniedError or RefusedError; then nothing has changed."""
        path = f"{self._mount}/sign/{self._role}"
        try:
            answer = await self._vault.ask("POST", path, body=self._wanted(csr_pem))
        except DeniedError as err:
            raise DeniedError(
                f'{err}; its policy needs: path "{path}" {{ capabilities = ["update"] }}',
                reason=err.reason,
            ) from err
        except NotFoundError as err:
            raise RefusedError(f"{err}; is there a PKI engine at {self._mount}?") from err
        except RefusedError as err:
            raise RefusedError(f"{err}; the role needs at least: {self._needed()}") from err
        return _issued(answer)

    async def revoked(self) -> frozenset[str]:
        """The serials of revoked certificates, in hexadecimal digits. Raises as `issue`."""
        try:
            return serials_in(await self._vault.fetch_public(f"{self._mount}/crl"))
        except ValueError as err:
            raise UnavailableError("Vault answers with no revocation list") from err

    def _wanted(self, csr_pem: bytes) -> Mapping[str, Any]:
        names = self._names
        return {
            "csr": csr_pem.decode(),
            "common_name": names.common_name,
            "alt_names": ",".join(names.hosts),
            "ip_sans": ",".join(names.addresses),
            "uri_sans": names.uri,
            "ttl": f"{int(self._ttl.total_seconds())}s",
            "format": "pem",
        }

    def _needed(self) -> str:
        """The command that lets the role sign what this process asks for."""
        hosts = ",".join(self._names.hosts)
        return (
            f"vault write {self._mount}/roles/{self._role} key_type=any allow_bare_domains=true "
            f"allowed_domains={hosts} allowed_uri_sans={self._names.uri} "
            f"max_ttl={int(self._ttl.total_seconds())}s"
        )


def _issued(answer: Mapping[str, Any]) -> Issued:
    data = answer.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("certificate"), str):
        raise UnavailableError("Vault answers with no certificate")
    listed = data.get("ca_chain") or [data.get("issuing_ca") or ""]
    try:
        leaf = x509.load_pem_x509_certificate(data["certificate"].encode())
        above = [x509.load_pem_x509_certificate(str(one).encode()) for one in listed]
    except ValueError as err:
        raise UnavailableError("Vault answers with a certificate that cannot be read") from err
    between = [one for one in above if one.subject != one.issuer]
    # An engine that was never given its root has only what is below it to be believed by.
    roots = [one for one in above if one.subject == one.issuer] or above[-1:]
    return Issued(_pem([leaf, *between]), _pem(roots))


def _pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)
