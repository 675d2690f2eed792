"""The control contract over HTTP. Called by the gateway and the REST client.

`routes.py`          the routes, derived from `wire/methods.py`
`status.py`          the table of errors, gRPC codes and HTTP statuses
`json_codec.py`      protobuf messages as JSON, faster than protobuf's own encoder and with sorted maps
"""
