"""Validation of spec fields that both contracts share. Each error names the field and the expected value.

Called by the decoders in `wire/control`, `wire/agent`, `wire/compose` and `wire/specfile`.

`checks.py`    single values: numbers, words, paths, names, addresses, sizes
`fields.py`    resources, ports, mounts, volumes, cloud-init
`files.py`     small files of a container
`health.py`    health checks
`vm_rules.py`  disks, networks and cloud-init of a VM
`login.py`     login of a VM
`image.py`     VM images
`volume.py`    views of volumes
"""
