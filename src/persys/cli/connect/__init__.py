"""Connects one command to its server: a scheduler, a gateway, an agent or the CA.

In reading order:

- `clients.py`: a client for a command, and the error message when the server does not respond
- `settings.py`: addresses and timeouts from flags, variables, the context and defaults
- `context_file.py`: reads and writes ~/.persys/config.yaml
- `tls.py`: client certificate, token and verification of the server
- `endpoints.py`: the first reachable of several schedulers, or of an SRV record
- `diagnose.py`: explains a failed TLS connection

Called by the commands, by the doctor and by `persys up`.
"""
