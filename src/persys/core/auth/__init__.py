"""Authentication and authorization: roles, certificates and tokens.

    permissions.py          the permissions of each role, and of the routes of persys-ca
    tokens.py               API tokens of users: creation, scope and validity
    enrolment.py            certificates that persys-ca issues, and join tokens
    certificate_renewal.py  when a certificate is renewed
    denials.py              rate limit for events of denied calls

infra/rpc, persys-ca, the scheduler and the gateway call it.
"""
