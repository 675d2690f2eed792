"""Building blocks of all processes. Nothing here knows about workloads.

`settings.py`      settings from flags, variables, a file and defaults
`command_line.py`  the argparse parser of all programs
`process.py`       the outermost frame of a process: signals, exit code, limits
`clock.py`         the only module that reads the clock
`atomic_files.py`  atomic and durable writes of files
`encryption.py`    encryption of secrets with a key file
`mount_table.py`   the kernel's mount table
`libvirt_binding.py`  the Python binding of libvirt: of pip or of the distribution
`gc_tuning.py`     short pauses of the garbage collector, and freed memory returned to the system
`subprocesses.py`  runs external programs with limits on time and output
`failpoints.py`    points at which tests kill a process
`aio/`             concurrency: supervision, queues, locks, group commit, flow control
`net/`             addresses, SRV records, the HTTP server
`rpc/`             gRPC servers, channels and authorization
`tls/`             certificates, renewal, revocation, identities
`telemetry/`       logs, metrics, traces
`vault/`           HashiCorp Vault
"""
