"""HashiCorp Vault as a source of certificates and secrets.

Written on aiohttp instead of hvac, which is synchronous and does not renew leases.

`settings.py`  the settings
`session.py`   a client that stays logged in, and the KV engine
`login.py`     token and AppRole logins with their leases
`http.py`      HTTP requests and errors
`pki.py`       certificates from the PKI engine
"""
