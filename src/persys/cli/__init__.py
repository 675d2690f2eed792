"""The command line: `persysctl` for a cluster, `persys` for one machine.

In reading order:

- `persysctl.py`: entry point of persysctl; parses the command line and runs one function
- `persys.py`: entry point of persys: up, down, status, clean-demo, sim
- `framework/`: command table, parser, completion, manual, output formats, exit codes
- `commands/`: one module per command or group of persysctl, found under its name
- `specs/`: spec files of a command: read, applied and compared
- `connect/`: settings, contexts, TLS and clients for one command
- `doctor/`: the checks of `persysctl doctor`
- `local/`: the processes of `persys up`, and `persys sim`

Nothing imports this package. Commands talk to the cluster only through `persys.client`; only `local` starts
processes. Modules are imported when a command needs them: start-up time is measured by bench/startup.py.
"""
