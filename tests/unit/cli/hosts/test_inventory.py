"""Hosts on the command line and in a file."""

import pytest

from persys.cli.framework.exit_codes import UsageError
from persys.cli.hosts.inventory import Host, Member, parse_hosts, parse_hosts_file


def test_hosts_have_an_optional_user_and_port() -> None:
    found = parse_hosts("a, ada@b.example.org ,root@10.0.0.3:2222,[fd00::1]:22,")

    assert found == [
        Host("a"),
        Host("ada@b.example.org"),
        Host("root@10.0.0.3", 2222),
        Host("fd00::1", 22),
    ]


@pytest.mark.parametrize("text", ["-oProxyCommand=x", "a b", "a:0", "a:70000", "a:x", "@a", "a/b"])
def test_an_invalid_host_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected \[USER@\]HOST\[:PORT\], for example"):
        parse_hosts(f"ok,{text}")


def test_a_host_is_listed_once() -> None:
    with pytest.raises(UsageError, match="'ada@a' is listed twice"):
        parse_hosts("ada@a,b,ada@a")


@pytest.mark.parametrize("text", ["", " , ", "# nothing\n"])
def test_no_hosts_are_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="no hosts"):
        parse_hosts_file(text) if "#" in text else parse_hosts(text)


def test_a_hosts_file_has_names_and_addresses() -> None:
    found = parse_hosts_file(
        "# three servers\n\nada@a:22 name=n1 address=10.0.0.1  # the first\nb\n"
    )

    assert found == [Host("ada@a", 22, "n1", "10.0.0.1"), Host("b")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a address=example.org", "invalid address 'example.org'"),
        ("a zone=eu", "invalid setting 'zone=eu'"),
        ("a name=", "invalid setting 'name='"),
        ("a name=-x", "invalid node id '-x'"),
        ("a:x", "invalid host 'a:x'"),
    ],
)
def test_an_error_in_a_hosts_file_names_the_line(line: str, expected: str) -> None:
    with pytest.raises(UsageError, match="line 2 of the hosts file") as refused:
        parse_hosts_file(f"ok\n{line}\n")

    assert expected in str(refused.value)


def test_an_ipv6_address_with_a_port_has_brackets() -> None:
    assert Member(Host("a"), "a", "fd00::1", "python3").at(8085) == "[fd00::1]:8085"
    assert Member(Host("a"), "a", "10.0.0.1", "python3").at(8085) == "10.0.0.1:8085"
