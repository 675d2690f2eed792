"""Building blocks of all processes: concurrency, network, RPC, TLS, telemetry, Vault. No workload logic."""
