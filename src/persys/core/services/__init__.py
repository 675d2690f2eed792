"""Services: which workloads are members, and where clients reach the healthy ones.

checks.py     which services are valid, and what an apply changes
selection.py  which workloads a service selects, and with which weight
endpoints.py  the endpoints of a service, and why a member is not one
names.py      the DNS records of a service
answers.py    the answers to DNS questions, for a scheduler that serves DNS itself

`scheduler/services` keeps the endpoints up to date, `scheduler/discovery` publishes them.
"""
