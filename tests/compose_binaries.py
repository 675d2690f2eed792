"""Values of PERSYS_COMPOSE_BINARY for both versions of Compose on this host."""

from pathlib import Path

_PLUGIN = Path(__file__).parents[1] / ".cache" / "compose" / "cli-plugins" / "docker-compose"

V1 = "docker-compose"
V2 = str(_PLUGIN) if _PLUGIN.exists() else "docker compose"
