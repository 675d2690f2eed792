"""What a scheduler says beside its answers, as trailing metadata, when it is not in normal mode."""

MODE = "persys-mode"
DATA_AGE_MS = "persys-data-age-ms"
