"""Spec files: YAML or JSON, with the position of every error.

Hand-written instead of a YAML-to-protobuf library: line numbers and safe handling of untrusted aliases are
required. Called by the CLI, the dashboard and GitOps.

`parser.py`          files to requests, with the short forms of ports, volumes and health checks
`spec_documents.py`  the documents of a file: workloads, sets, jobs, services and node pools
`document.py`        other formats: views of workloads and Compose files; positions of fields
`overrides.py`       changes before the validation: variables and `--set`
`set_file.py`, `job_file.py`, `service_file.py`, `pool_file.py`  the keys of the other kinds
`export.py`          workloads and the other kinds as documents, for `get -o yaml`
`value_readers.py`   durations, percentages and words of these keys
`strict.py`          strict decoding of YAML nodes into protobuf messages
`yaml_nodes.py`      traversal of untrusted YAML within a budget
"""
