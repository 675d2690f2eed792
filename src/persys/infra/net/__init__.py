"""Network addresses and the HTTP server.

`address.py`      parsing of addresses, and the address of this machine
`srv.py`          DNS SRV records
`dns_wire.py`     DNS messages
`dns_server.py`   a bounded DNS server
`node_name.py`    the id of this node
`listener.py`     connections to a port, with limits
`http_server.py`  the limited HTTP server of the gateway and persys-ca
"""
