"""Certificates of the etcd members, from a CA that signs nothing else. Runs on the first host.

etcd accepts every client with a certificate of its CA, so this is not the CA of the cluster: a certificate of
an agent or a user must not give access to the store. Nothing renews these certificates, so they are valid for
ten years.

Usage: python -m persys.cli.hosts.etcd_certificates DIRECTORY NAME ADDRESS
Prints a tar archive with ca.crt, etcd.crt and etcd.key.
"""

import io
import sys
import tarfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from persys.ca.x509 import Issuer, issue, new_root, pem
from persys.infra.atomic_files import PRIVATE, write_file
from persys.infra.clock import SystemClock
from persys.infra.tls.keys import key_pem, new_key
from persys.model.identity import Identity
from persys.model.role import Role

LIFETIME = timedelta(days=3650)
ROOT_LIFETIME = LIFETIME * 2  # a member that is replaced gets a certificate with the full lifetime
ROOT_FILE = "root.pem"  # certificate and key


def member_certificate(directory: Path, name: str, address: str, *, now: datetime) -> bytes:
    """The archive. Creates the CA in `directory` if there is none."""
    root = _open_root(directory, now)
    key = new_key()
    certificate = issue(
        root,
        key.public_key(),
        Identity(Role.SCHEDULER, name),
        trust_domain="persys.local",
        hosts=[address, name],
        now=now,
        lifetime=LIFETIME,
    )
    return _archive(
        {"ca.crt": pem(root.certificate), "etcd.crt": pem(certificate), "etcd.key": key_pem(key)}
    )


def _open_root(directory: Path, now: datetime) -> Issuer:
    path = directory / ROOT_FILE
    if not path.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        created = new_root("Persys etcd", now=now, lifetime=ROOT_LIFETIME)
        write_file(path, pem(created.certificate) + key_pem(created.key), mode=PRIVATE)
    content = path.read_bytes()
    key = load_pem_private_key(content, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Issuer(x509.load_pem_x509_certificate(content), key)


def _archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), PRIVATE
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def main(words: Sequence[str]) -> int:
    directory, name, address = words
    archive = member_certificate(Path(directory), name, address, now=SystemClock().now())
    sys.stdout.buffer.write(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
