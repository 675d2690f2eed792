"""Maximum sizes of gRPC messages. A separate module, because persysctl starts faster without gRPC."""

# Above the largest accepted spec, so that a larger one is refused with its field and not by the transport.
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
# A list of more than a hundred thousand workloads.
LIST_BYTES_MAX = 256 * 1024 * 1024
