"""Persys Compute: containers, Compose stacks and virtual machines on ordinary servers."""

import os

__version__ = "0.1.0"

# gRPC restarts its threads in the child of a fork, and that child may crash before it executes its program.
# Children of these processes only ever execute one. gRPC reads this when it is first imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
# The C core of gRPC writes plain lines to standard error, between the JSON lines of our own log. What
# matters of them reaches us as the status of a call. Set GRPC_VERBOSITY to see them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
