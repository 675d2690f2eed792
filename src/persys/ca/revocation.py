"""The certificate revocation list (CRL), signed by the intermediate.

It contains serials from all intermediates: serials are random and unique.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from persys.ca.issuing import Issuer
from persys.wire.ca.messages import CertificateView

VALID_FOR = timedelta(days=7)
_BACKDATED = timedelta(minutes=5)  # tolerates clock skew of readers


def revocation_list(
    issuer: Issuer, revoked: Iterable[CertificateView], *, now: datetime
) -> x509.CertificateRevocationList:
    known = issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(now - _BACKDATED)
        .next_update(now + VALID_FOR)
        .add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known), critical=False
        )
    )
    for view in revoked:
        assert view.revoked_at is not None, "only revoked certificates are listed"
        entry = x509.RevokedCertificateBuilder(int(view.serial, 16), view.revoked_at)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(issuer.key, hashes.SHA256())
