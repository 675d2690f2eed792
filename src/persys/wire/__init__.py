"""Codecs: the only package that knows the encodings of the outside world.

It converts between the model and protobuf, JSON, spec files and stored bytes, validates input, and names the
field in every error. It does no I/O. All processes, the client and the CLI use it.

`methods.py`         the table of all RPCs: permission, routes, forwarding, audit, time limits
`errors.py`          our errors and gRPC status codes
`metadata_keys.py`   gRPC metadata keys
`times.py`           timestamps; three encodings of an unset time
`usage.py`           usage of a workload, for both contracts
`control/`, `agent/` the two protobuf contracts
`spec/`              validation of spec fields, shared by both contracts
`compose/`           Compose files: source, interpolation, requirements, rules
`specfile/`          YAML and JSON spec files
`schema/`            the JSON schema and the reference of spec files
`limits/`            length, count and range of every protobuf field
`stored/`            stored records, revisions, snapshot files
`rest/`              HTTP routes, JSON and OpenAPI schemas of the control contract
`ca/`                messages of the certificate authority, join tokens
`gen/`               generated protobuf code
"""
