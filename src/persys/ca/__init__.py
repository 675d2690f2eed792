"""persys-ca: the certificate authority of a cluster.

It decides who gets a certificate, signs it with its intermediate, and records it. Nodes join with one-time
tokens, services renew their certificates, admins create and revoke certificates. Clients are the agents,
schedulers and gateways (`persys.client.ca`), persysctl, and cfssl clients.

    __main__     the entry point
    settings     flags, environment variables and files
    app          builds and runs the process
    api/         the HTTPS API
    authority    checks, signs and records each request
    csr          parses certificate signing requests
    x509         creates certificates and the revocation list
    key_files    the keys of root and intermediate on disk
    database     certificates, join tokens and the audit log in SQLite
    metrics      metrics at /metrics
    cli          commands on the CA host for the first certificates
"""
