# ruff: noqa: RUF009 - `setting` makes a dataclass field
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from persys.errors import SettingsError
from persys.infra.settings import Loaded, load, setting


@dataclass(frozen=True)
class AnySettings:
    port: int = setting(8085, "ANY_PORT", "OLD_PORT", help="where to listen")
    threshold: float = setting(80.0, "ANY_THRESHOLD", help="percent")
    interval: timedelta = setting(timedelta(seconds=10), "ANY_INTERVAL", help="how often")
    insecure: bool = setting(False, "ANY_INSECURE", help="no TLS")
    name: str = setting("", "ANY_NAME", help="a name")
    root: Path = setting(Path("data"), "ANY_ROOT", help="where files go")
    endpoints: tuple[str, ...] = setting(("localhost:1",), "ANY_ENDPOINTS", help="a list")
    labels: dict[str, str] = setting({}, "ANY_LABELS", help="pairs")
    password: str = setting("", "ANY_PASSWORD", help="a secret", secret=True)


def loaded(*argv: str, **environ: str) -> Loaded[AnySettings]:
    return load(AnySettings, argv, environ, program="any")


def a_file(folder: Path, text: str) -> str:
    path = folder / "settings.yaml"
    path.write_text(text)
    return str(path)


def test_without_settings_the_defaults_are_used() -> None:
    assert loaded().settings == AnySettings()
    assert set(loaded().sources.values()) == {"default"}


def test_a_file_takes_precedence_over_the_default(tmp_path: Path) -> None:
    assert loaded("--config", a_file(tmp_path, "port: 1")).settings.port == 1


def test_a_variable_takes_precedence_over_the_file(tmp_path: Path) -> None:
    found = loaded("--config", a_file(tmp_path, "port: 1"), ANY_PORT="2")

    assert (found.settings.port, found.sources["port"]) == (2, "ANY_PORT")


def test_a_flag_takes_precedence_over_the_variable_and_the_file(tmp_path: Path) -> None:
    found = loaded("--config", a_file(tmp_path, "port: 1"), "--port", "3", ANY_PORT="2")

    assert (found.settings.port, found.sources["port"]) == (3, "--port")


def test_the_first_of_several_variables_wins() -> None:
    assert loaded(ANY_PORT="1", OLD_PORT="2").settings.port == 1
    assert loaded(OLD_PORT="2").settings.port == 2


def test_an_empty_variable_counts_as_not_set() -> None:
    assert loaded(ANY_PORT="").settings.port == 8085


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15), ("3m", 180), ("1m30s", 90), ("500ms", 0.5), ("20", 20)]
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert loaded(ANY_INTERVAL=text).settings.interval == timedelta(seconds=seconds)


@pytest.mark.parametrize("word", ["true", "True", "TRUE", "1", "yes", "Yes"])
def test_booleans_are_true_in_any_case(word: str) -> None:
    assert loaded(ANY_INSECURE=word).settings.insecure is True


@pytest.mark.parametrize("word", ["false", "False", "FALSE", "0", "no", "NO"])
def test_booleans_are_false_in_any_case(word: str) -> None:
    assert loaded("--insecure", word, ANY_INSECURE="true").settings.insecure is False


@pytest.mark.parametrize("flag", ["-insecure", "--insecure", "--insecure=true"])
def test_a_boolean_flag_takes_one_dash_or_two(flag: str) -> None:
    assert loaded(flag).settings.insecure is True


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("ANY_PORT", "eighty"),
        ("ANY_PORT", "1_000"),
        ("ANY_THRESHOLD", "much"),
        ("ANY_THRESHOLD", "nan"),
        ("ANY_INTERVAL", "soon"),
        ("ANY_INTERVAL", "-5s"),
        ("ANY_INTERVAL", "99999999999999999d"),
        ("ANY_INSECURE", "maybe"),
        ("ANY_LABELS", "rack"),
    ],
)
def test_an_invalid_value_names_the_variable_and_the_value(variable: str, text: str) -> None:
    with pytest.raises(SettingsError) as error:
        loaded(**{variable: text})

    assert str(error.value).startswith(f"{variable}={text!r}: ")


def test_an_invalid_value_of_a_flag_names_the_flag() -> None:
    with pytest.raises(SettingsError, match="--port='x': expected a whole number"):
        loaded("--port", "x")


def test_an_invalid_value_in_the_file_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="file key interval='soon'"):
        loaded("--config", a_file(tmp_path, "interval: soon"))


def test_an_unknown_key_suggests_the_nearest_known_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"unknown key 'intervall'; did you mean interval\?"):
        loaded("--config", a_file(tmp_path, "intervall: 5s"))


@pytest.mark.parametrize("text", ["- a\n- b\n", "port: [1\n", "port: [1, 2]\n", "name: {a: b}\n"])
def test_a_file_that_is_not_a_mapping_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError):
        loaded("--config", a_file(tmp_path, text))


def test_a_file_that_is_not_text_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(SettingsError, match=r"binary\.yaml"):
        loaded("--config", str(path))


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.yaml"):
        loaded("--config", str(tmp_path / "absent.yaml"))


def test_a_key_without_a_value_leaves_the_default(tmp_path: Path) -> None:
    found = loaded("--config", a_file(tmp_path, "port:\n"))

    assert (found.settings.port, found.sources["port"]) == (8085, "default")


def test_lists_and_pairs_are_written_with_commas_or_in_yaml(tmp_path: Path) -> None:
    by_variable = loaded(ANY_ENDPOINTS="a:1, b:2", ANY_LABELS="rack=1,zone=")
    by_file = loaded(
        "--config",
        a_file(tmp_path, "endpoints: ['a:1', 'b:2']\nlabels: {rack: 1, zone: ''}\n"),
    )

    assert by_variable.settings.endpoints == ("a:1", "b:2")
    assert by_variable.settings.labels == {"rack": "1", "zone": ""}
    assert by_file.settings == by_variable.settings


def test_an_unknown_flag_ends_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        loaded("--prot", "1")

    assert error.value.code == 2
    assert "--prot" in capsys.readouterr().err


def test_the_shown_configuration_masks_secrets_and_names_every_source() -> None:
    found = loaded("--print-config", "--port", "1", ANY_PASSWORD="hunter2", ANY_INTERVAL="90s")

    assert found.print_config
    assert "hunter2" not in found.describe()
    assert "password = ********  # ANY_PASSWORD" in found.describe()
    assert "port = 1  # --port" in found.describe()
    assert "interval = 90s  # ANY_INTERVAL" in found.describe()
    assert "threshold = 80.0  # default" in found.describe()


def test_a_secret_that_is_not_set_is_not_shown_as_set() -> None:
    assert "*" not in loaded().describe()


def test_the_help_names_every_variable_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        loaded("--help")

    text = " ".join(capsys.readouterr().out.split())
    assert "[ANY_PORT, OLD_PORT] (default: 8085)" in text
    assert "[ANY_INTERVAL] (default: 10s)" in text
