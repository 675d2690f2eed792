"""How large a message of gRPC may be. By itself, because a command line starts faster without gRPC."""

# Over the largest spec that is taken, so that one too large is refused by name and not by the transport.
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
# What a scheduler tells of a hundred thousand workloads at once, with room to spare.
LIST_BYTES_MAX = 256 * 1024 * 1024
