"""Progress of a pull, from the lines of Docker."""

from persys.core.agent.report import LayerProgress


def a_line(layer: str, status: str, current: int = 0, total: int = 0) -> dict[str, object]:
    detail = {"current": current, "total": total} if total else {}
    return {"id": layer, "status": status, "progressDetail": detail}


def describe(*lines: dict[str, object]) -> str:
    layers = LayerProgress("web:1")
    for line in lines:
        layers.take(line)
    return layers.describe()


def test_at_first_only_the_image_is_named() -> None:
    assert describe({}, {"status": "Pulling from web", "id": "1"}) == "pulling web:1"


def test_layers_are_counted_before_their_sizes_are_known() -> None:
    lines = (a_line("a", "Pulling fs layer"), a_line("b", "Already exists"))

    assert describe(*lines) == "pulling web:1: 1 of 2 layers"


def test_bytes_are_those_of_the_layers_that_are_on_their_way() -> None:
    lines = (
        a_line("a", "Pulling fs layer"),
        a_line("b", "Downloading", 42_000_000, 100_000_000),
        a_line("a", "Downloading", 500_000, 20_000_000),
    )

    assert describe(*lines) == "pulling web:1: 0 of 2 layers, 42 of 120 MB"


def test_a_layer_that_is_here_counts_whole() -> None:
    lines = (
        a_line("a", "Downloading", 1, 2_500_000),
        a_line("a", "Download complete"),
        a_line("a", "Extracting", 7, 99),
        a_line("a", "Pull complete"),
    )

    assert describe(*lines) == "pulling web:1: 1 of 1 layers, 2.5 of 2.5 MB"
