"""The client of persys-ca.

    client.py         AuthorityClient, joining with a token, and the source of renewed certificates
    https.py          HTTPS requests to one of several addresses
    renewed_tls.py    TLS of a process whose certificate is renewed by persys-ca or Vault

Used by `persysctl`, and by schedulers, agents and gateways at start-up.
"""
