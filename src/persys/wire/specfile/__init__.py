"""Spec files: YAML or JSON, with the line of every error.

Hand-written instead of a YAML-to-protobuf library: line numbers and safe handling of untrusted aliases are
required. Called by the CLI, the dashboard and GitOps.

`parser.py`      files to ApplyWorkload requests, with the short forms of ports, volumes and health checks
`document.py`    other documents: views of workloads and Compose files; line numbers of fields
`pool_file.py`   node pool files
`strict.py`      strict decoding of YAML nodes into protobuf messages
`yaml_nodes.py`  traversal of untrusted YAML within a budget
"""
