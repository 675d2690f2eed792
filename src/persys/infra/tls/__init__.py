"""Certificates of a process and identities of its peers.

Called by every process that has a certificate; `infra/rpc` uses the identities.

`settings.py`           the settings
`tls.py`                everything together: certificate, renewal, revocation lists, channels
`identity.py`           the identity in a certificate
`keys.py`               private keys and signing requests
`certificates.py`       the certificate in use, reloaded from its files
`first_certificate.py`  waits for the first certificate
`renewal.py`            requests a new certificate at half of the lifetime
`server_names.py`       the names that certificates of schedulers must have
`revocation.py`         lists of revoked certificates
`metrics.py`            expiry and age as metrics
"""
