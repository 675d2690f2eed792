"""The scheduler, its agents and services in DNS.

endpoints.py        names, address and port of a scheduler, from its settings
dns_records.py      writes the records into the etcd that CoreDNS reads, and checks that DNS serves them
service_records.py  the records of services; and the answers of a scheduler that serves DNS itself

`app` runs it as leader and as standby.
"""
