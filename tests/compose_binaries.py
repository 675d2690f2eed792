"""Both generations of Compose as this machine has them, in the words of PERSYS_COMPOSE_BINARY."""

from pathlib import Path

_PLUGIN = Path(__file__).parents[1] / ".cache" / "compose" / "cli-plugins" / "docker-compose"

V1 = "docker-compose"
V2 = str(_PLUGIN) if _PLUGIN.exists() else "docker compose"
