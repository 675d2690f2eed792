"""What `make release` builds: wheel, source archive, Debian packages, bill of materials, checksums."""

import json
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from e2e.process import output

ROOT = Path(__file__).resolve().parents[2]
VERSION = "7.8.9rc1"
PARTS = ("agent", "ca", "common", "ctl", "federation", "gateway", "scheduler")
_SECONDS = 1200


def run(*words: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    return output(words, cwd=cwd, variables=variables, seconds=_SECONDS)


def pinned() -> dict[str, str]:
    text = (ROOT / "requirements" / "runtime.txt").read_text("utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M))


def assert_complete(bill: dict[str, Any]) -> None:
    """As CycloneDX 1.5 requires, and with all that requirements/runtime.txt pins."""
    components = {one["name"]: one for one in bill["components"]}
    refs = {one["bom-ref"] for one in (*bill["components"], bill["metadata"]["component"])}

    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    assert bill["metadata"]["component"]["name"] == "persys"
    assert {name: components[name]["version"] for name in pinned()} == pinned()
    assert [name for name in pinned() if not components[name]["licenses"]] == []
    depends = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert depends.keys() == refs
    assert {ref for needed in depends.values() for ref in needed} <= refs
    own = depends[bill["metadata"]["component"]["bom-ref"]]
    assert f"pkg:pypi/msgspec@{pinned()['msgspec']}" in own


def test_the_bill_of_materials_lists_all_distributions_and_is_always_the_same() -> None:
    words = (sys.executable, "scripts/sbom", sysconfig.get_paths()["purelib"])

    first, second = (run(*words, SOURCE_DATE_EPOCH="1000000000") for _ in range(2))

    assert_complete(json.loads(first))
    assert json.loads(first)["metadata"]["timestamp"] == "2001-09-09T01:46:40Z"
    assert first == second


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("release")
    run("scripts/release", target, VERSION=VERSION)
    return target


@pytest.mark.full
@pytest.mark.timeout(_SECONDS)
def test_a_release_has_all_files_with_their_checksums(release: Path) -> None:
    debian = VERSION.replace("rc", "~rc")
    names = {path.name for path in release.iterdir()}

    architecture = run("dpkg", "--print-architecture")
    assert names == {
        "SHA256SUMS",
        f"persys-{VERSION}-py3-none-any.whl",
        f"persys-{VERSION}.tar.gz",
        f"persys-{VERSION}.cdx.json",
        *(
            f"persys-{part}_{debian}_{architecture if part == 'common' else 'all'}.deb"
            for part in PARTS
        ),
    }
    checked = run("sha256sum", "--check", "SHA256SUMS", cwd=release).splitlines()
    assert len(checked) == len(names) - 1
    assert_complete(json.loads((release / f"persys-{VERSION}.cdx.json").read_text()))


@pytest.mark.full
@pytest.mark.timeout(_SECONDS)
def test_the_source_archive_installs_with_its_version(release: Path, tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")

    run(*pip, "--wheel-dir", tmp_path, release / f"persys-{VERSION}.tar.gz")

    assert [path.name for path in tmp_path.iterdir()] == [f"persys-{VERSION}-py3-none-any.whl"]


@pytest.mark.full
@pytest.mark.timeout(2 * _SECONDS)
def test_a_second_release_of_the_commit_has_the_same_checksums(
    release: Path, tmp_path: Path
) -> None:
    run("scripts/release", tmp_path / "again", VERSION=VERSION)

    again = (tmp_path / "again" / "SHA256SUMS").read_text()
    assert again == (release / "SHA256SUMS").read_text()
