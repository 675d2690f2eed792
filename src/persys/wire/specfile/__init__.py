"""Spec files: YAML or JSON, with the position of every error.

Hand-written instead of a YAML-to-protobuf library: line numbers and safe handling of untrusted aliases are
required. Called by the CLI, the dashboard and GitOps.

`parser.py`      files to ApplyWorkload requests, with the short forms of ports, volumes and health checks
`document.py`    other documents: views of workloads and Compose files; positions of fields
`overrides.py`   changes before the validation: variables and `--set`
`pool_file.py`   node pools
`export.py`      workloads and node pools as documents, for `get -o yaml`
`strict.py`      strict decoding of YAML nodes into protobuf messages
`yaml_nodes.py`  traversal of untrusted YAML within a budget
"""
