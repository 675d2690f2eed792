"""The connection to the scheduler: registration, heartbeats, and what follows when it is lost.

session.py      `SchedulerSession`: the loop that connects, registers and sends heartbeats
heartbeat.py    builds reports and heartbeats; collects changes that are not reported yet
link.py         the interface of a connection, and its unary gRPC implementation
stream_link.py  the control stream, and the switch from one connection to another
contact.py      `SchedulerContact`: how long the leader has not responded, and which workloads must stop

Run by `app.py`. Calls that arrive on the stream go to `api/tunnel_server.py`.
"""
