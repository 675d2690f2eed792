"""Network addresses and the HTTP server.

`address.py`      parsing of addresses, and the address of this machine
`srv.py`          DNS SRV records
`node_name.py`    the id of this node
`http_server.py`  the limited HTTP server of the gateway, persys-ca and the metrics port
"""
