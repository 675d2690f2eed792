"""The HTTPS API of the CA. `ca.app` serves it; every request runs on the CA's single thread.

Clients are `persys.client.ca` and cfssl clients.

    authorization   size, time and certificate checks of every request, and the request and response types
    routes          join, renew, create, revoke, list, health, metrics, CRL; the routes of cfssl
    cfssl           the message types of the cfssl API
"""
