"""The generated code matches the proto files exactly."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = ("src/persys/wire/gen", "src/persys/store/gen")


def test_the_generated_files_are_current(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts/generate", tmp_path], check=True, timeout=120)

    fresh = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*_pb2*")}
    kept = {
        path.relative_to(ROOT / "src"): path.read_bytes()
        for folder in GENERATED
        for path in (ROOT / folder).rglob("*_pb2*")
        if path.suffix in (".py", ".pyi")
    }
    assert fresh.keys() == kept.keys()
    assert [str(path) for path in fresh if fresh[path] != kept[path]] == []
