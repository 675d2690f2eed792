"""The schema of spec files, for editors and for the reference.

Field names and types come from the protobuf contract and limits from `wire/limits`; only the texts, defaults
and examples are written here. Called by `persysctl schema` and `scripts/schema`.

`descriptions.py`          text, default, limits and example of every field
`set_job_descriptions.py`  those of sets and jobs
`service_descriptions.py`  those of services
`sections.py`              the mappings of a file, in the order of the reference
`json_schema.py`           the JSON schema
`reference.py`             docs/reference/spec.md
"""
