"""The connection to the remote cluster: several addresses, and files that change."""

from pathlib import Path

from persys.client.scheduler import SchedulerClient
from persys.errors import SettingsError
from persys.federation.connection import Connection


class Opened:
    """Counts what was opened."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.calls: list[tuple[str, str]] = []

    def client(self, address: str) -> SchedulerClient:
        text = self._file.read_text()
        if not text:
            raise SettingsError("the file is empty")
        self.calls.append((address, text))
        return SchedulerClient(address)


def a_file(directory: Path) -> Path:
    file = directory / "token"
    file.write_text("first")
    return file


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    opened = Opened(file)
    connection = Connection(("a:1",), opened.client, file)
    before = connection.stub
    assert connection.stub is before

    file.write_text("another")

    assert connection.stub is not before
    assert opened.calls == [("a:1", "first"), ("a:1", "another")]
    connection.close()


def test_the_last_connection_stays_while_a_file_cannot_be_used(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    connection = Connection(("a:1",), Opened(file).client, file)
    before = connection.stub

    file.write_text("")
    assert connection.stub is before
    file.write_text("second")

    assert connection.stub is not before
    connection.close()


def test_the_next_address_is_used_once_per_failure(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    opened = Opened(file)
    connection = Connection(("a:1", "b:2"), opened.client, file)

    failed = connection.opened
    for _ in range(3):  # of calls at the same time
        connection.failed(failed)
    assert connection.address == "b:2"
    connection.failed(connection.opened)

    assert [address for address, _ in opened.calls] == ["a:1", "b:2", "a:1"]
    connection.close()


def test_a_single_address_is_kept(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    connection = Connection(("a:1",), Opened(file).client, file)

    connection.failed(connection.opened)

    assert connection.opened == 1
    connection.close()
