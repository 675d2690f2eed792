"""Certificates, tokens, authorization and audit of callers.

tls.py            the scheduler's certificate, and how it verifies agents and the leader
authorization.py  checks the caller of an RPC; an agent acts only for its own node
prefix_scope.py   limits tokens with a prefix to names that begin with it
tokens.py         access tokens of users: create, revoke
audit.py          names the caller in the events of a request; denied requests as events

`server` opens TLS and records denials, `api` uses tokens and audit. The permissions are in `core/auth`.
"""
