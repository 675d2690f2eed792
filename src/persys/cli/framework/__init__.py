"""The parts that all commands share: the command table, and what is generated from it.

In reading order:

- `tables/`: every command with its help, its arguments and its function; `command_table.py`: their order
- `arguments.py`, `examples.py`: arguments and examples, as data
- `aliases.py`: words of docker, kubectl and nomad for commands; suggestions for an unknown command
- `parser.py`: the parser, built from the table
- `completion.py`: shell completion from the table
- `manual.py`: docs/reference/commands.md and the manual pages from the table
- `output.py`: the formats of -o; `ages.py`: ages in tables; `terminal.py`: escapes control characters
- `live.py`: `--watch`, and progress on a terminal
- `exit_codes.py`: exit codes and the errors of the CLI

Called by the entry points and by every command.
"""
