"""Services: the records that users change, and their endpoints, computed in memory.

services.py        apply and delete services
endpoint_table.py  the endpoints of each service; only members that have changed are judged again
service_api.py     the RPCs of services, and their views

`core/services` decides what is an endpoint. `discovery` publishes the endpoints in DNS, and `api/service.py`
serves the RPCs.
"""
