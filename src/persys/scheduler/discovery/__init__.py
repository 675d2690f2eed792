"""The scheduler and its agents in DNS.

endpoints.py    names, address and port of a scheduler, from its settings
dns_records.py  writes the records into the etcd that CoreDNS reads, and checks that DNS serves them

`app` runs it as leader and as standby.
"""
