"""The shell scripts of the steps. They run as root under `set -eu`, after the functions of PRELUDE.

Values in them are names, addresses and paths that were checked before; secrets are read from standard input.
"""

import shlex
from collections.abc import Mapping, Sequence

from persys.cli.hosts.facts import STATE

PROGRAMS = "/opt/persys"
CERTIFICATES = "/etc/persys/certs"
ETCD_CERTIFICATES = f"{CERTIFICATES}/etcd"
ETCD_CA = "/var/lib/persys/etcd-ca"
ETCD_PROGRAM = "/opt/persys-etcd/etcd"
SECRETS_KEY = "/var/lib/persys/scheduler/secrets.key"
SECRETS_CREDENTIAL = "/etc/persys/secrets.key"
WAIT_SECONDS = 120

PRELUDE = f"""
set -eu
umask 022
cd /
export LC_ALL=C PATH={PROGRAMS}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
state={STATE}
fail() {{ echo "$*" >&2; exit 1; }}
# connects PYTHON HOST PORT
connects() {{
  "$1" -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)' \\
    "$2" "$3" 2>/dev/null
}}
# wait_for_port PYTHON HOST PORT UNIT: a unit that exits is restarted by systemd, so only the time ends it.
wait_for_port() {{
  count=0
  until connects "$1" "$2" "$3"; do
    count=$((count + 1))
    [ "$count" -lt {WAIT_SECONDS} ] || {{
      journalctl --no-pager --quiet -o cat -n 4 -u "$4" >&2 || true
      fail "$4 does not listen on $2:$3 after {WAIT_SECONDS} s; its log: journalctl -u $4"
    }}
    sleep 1
  done
}}
# must_reach PYTHON HOST PORT
must_reach() {{
  connects "$1" "$2" "$3" || fail "cannot connect to $2:$3: check that the firewall of that host" \\
    "allows it, for example with 'ufw allow $3/tcp'"
}}
# set_variable FILE NAME VALUE
set_variable() {{
  if grep -q "^$2=" "$1"; then sed -i "s|^$2=.*|$2=$3|" "$1"; else echo "$2=$3" >>"$1"; fi
}}
has_variable() {{ grep -qxF "$2=$3" "$1" 2>/dev/null; }}
# The settings of the CA apply to its commands too.
ca() {{
  set -a
  . /etc/persys/ca.env
  set +a
  runuser -u persys -- persys-ca "$@"
}}
restart() {{
  systemctl enable --quiet "$1"
  systemctl restart --no-block "$1"
}}
"""
LOCK = """
exec 9>/run/lock/persys-cluster-create
flock -w 600 9 || fail "another set-up has been running on this host for 10 minutes"
"""


def is_recorded(name: str, key: str) -> str:
    return f'[ "$(cat "$state/{name}" 2>/dev/null)" = {key} ] || exit 1\n'


def record(name: str, key: str) -> str:
    return f'mkdir -p "$state"\necho {key} >"$state/{name}.new"\nmv "$state/{name}.new" "$state/{name}"\n'


def install_wheel(python: str) -> str:
    """As deploy/install: the new environment replaces the old one, which is in use, when it is complete."""
    return f"""
work="$state/bundle"
rm -rf "$work" {PROGRAMS}.new {PROGRAMS}.old
mkdir -p "$work" /opt
tar -x -f - -C "$work"
new={PROGRAMS}.new
{python} -m venv "$new"
export PIP_DISABLE_PIP_VERSION_CHECK=1
if [ -d "$work/wheels" ]; then export PIP_NO_INDEX=1 PIP_FIND_LINKS="$work/wheels"; fi
"$new/bin/python" -c '
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        if name == "persys/cli/hosts/runtime.txt":
            sys.stdout.write(wheel.read(name).decode())
' "$work"/*.whl >"$work/runtime.txt"
if [ -s "$work/runtime.txt" ]; then
  "$new/bin/python" -m pip install --quiet --require-hashes -r "$work/runtime.txt"
  "$new/bin/python" -m pip install --quiet --no-deps "$work"/*.whl
else
  "$new/bin/python" -m pip install --quiet "$work"/*.whl
fi
# Scripts contain the path of their interpreter, which is moved below.
for script in "$new"/bin/* "$new/pyvenv.cfg"; do
  [ -L "$script" ] || sed -i "s|$new|{PROGRAMS}|g" "$script"
done
[ ! -e {PROGRAMS} ] || mv {PROGRAMS} {PROGRAMS}.old
mv "$new" {PROGRAMS}
rm -rf {PROGRAMS}.old "$work"
"""


def install_debs() -> str:
    return """
work="$state/bundle"
rm -rf "$work"
mkdir -p "$work"
tar -x -f - -C "$work"
export DEBIAN_FRONTEND=noninteractive
# Files in /etc/persys that exist are kept, without a question.
install_packages() {
  apt-get install -y -q -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confdef \\
    -o Dpkg::Options::=--force-confold "$work"/*.deb >&2
}
install_packages || { apt-get update -q >&2 && install_packages; }
rm -rf "$work"
"""


def install_units(parts: Sequence[str]) -> str:
    """As deploy/install: files in /etc/persys are not overwritten."""
    return f"""
from=$(echo {PROGRAMS}/lib/python3.*/site-packages/persys/cli/hosts/systemd)
[ -d "$from" ] || fail "the package has no units: expected one that was built with deploy/systemd"
for part in {" ".join(parts)}; do
  install -D -m 0644 "$from/persys-$part.service" "/etc/systemd/system/persys-$part.service"
  [ -e "/etc/persys/$part.env" ] || install -D -m 0640 "$from/$part.env" "/etc/persys/$part.env"
done
install -D -m 0644 "$from/persys.sysusers" /usr/lib/sysusers.d/persys.conf
systemd-sysusers /usr/lib/sysusers.d/persys.conf
install -d -m 0755 {CERTIFICATES}
for part in scheduler gateway; do
  install -d -m 0700 -o persys -g persys "{CERTIFICATES}/persys-$part"
done
mkdir -p /usr/local/bin
for program in persysctl persys-agent persys-ca persys-federation; do
  ln -sfn "{PROGRAMS}/bin/$program" "/usr/local/bin/$program"
done
systemctl daemon-reload
"""


def has_units(parts: Sequence[str]) -> str:
    return f"""
for part in {" ".join(parts)}; do
  [ -e "/etc/systemd/system/persys-$part.service" ] && [ -e "/etc/persys/$part.env" ] || exit 1
done
"""


def set_variables(part: str, variables: Mapping[str, str]) -> str:
    file = f"/etc/persys/{part}.env"
    lines = [f"[ -e {file} ] || install -D -m 0640 /dev/null {file}"]
    lines += [
        f"set_variable {file} {name} {shlex.quote(value)}" for name, value in variables.items()
    ]
    return "\n".join(lines) + "\n"


def has_variables(part: str, variables: Mapping[str, str]) -> str:
    file = f"/etc/persys/{part}.env"
    return "".join(
        f"has_variable {file} {name} {shlex.quote(value)} || exit 1\n"
        for name, value in variables.items()
    )


def start(part: str, python: str, address: str, port: int) -> str:
    return f"restart persys-{part}\nwait_for_port {python} {address} {port} persys-{part}\n"


def is_active(part: str) -> str:
    unit = f"persys-{part}"
    return f"systemctl is-active --quiet {unit} && systemctl is-enabled --quiet {unit}\n"


def token(role: str, name: str, hosts: Sequence[str] = ()) -> str:
    """Prints a join token. Runs on the host of the CA."""
    named = " ".join(f"--host {shlex.quote(host)}" for host in hosts)
    return f"ca token --role {role} --name {name} --ttl 1h {named}\n"


def join(role: str, hosts: Sequence[str] = ()) -> str:
    """Reads a token from standard input."""
    out = f"{CERTIFICATES}/persys-{role}"
    named = " ".join(f"--host {shlex.quote(host)}" for host in hosts)
    return f"persysctl certificate join - {named} --out {out} >&2\nchown -R persys: {out}\n"


def admin_certificate(name: str) -> str:
    """Prints an archive with certificate, key and roots. Runs on the host of the CA."""
    return f"""
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
chown persys: "$out"
ca certificate --role admin --name {shlex.quote(name)} --ttl 90d --out "$out" >&2
tar -c -C "$out" admin.crt admin.key ca.crt
"""


# check_etcd PROGRAM: the version that it prints.
CHECK_ETCD = """
check_etcd() {
  version=$("$1" --version 2>/dev/null | head -n 1)
  case "$version" in
    "etcd Version: "[0-2].* | "etcd Version: 3."[0-3].*)
      fail "$version is too old: expected 3.4 or newer; send one with --etcd PATH"
      ;;
    "etcd Version: "*) ;;
    *) fail "$1 does not print the version of etcd: expected an etcd program for this host" ;;
  esac
}
"""
INSTALL_ETCD = f"""
{CHECK_ETCD}
command -v etcd >/dev/null || {{
  # The package starts an etcd of its own, which would use the ports.
  systemctl mask --quiet etcd.service
  export DEBIAN_FRONTEND=noninteractive
  install_package="apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 etcd-server"
  $install_package >&2 || {{ apt-get update -q >&2 && $install_package >&2; }}
}}
check_etcd "$(command -v etcd)"
"""
SEND_ETCD = f"""
{CHECK_ETCD}
mkdir -p {ETCD_PROGRAM.rpartition("/")[0]}
cat >{ETCD_PROGRAM}.new
chmod 0755 {ETCD_PROGRAM}.new
check_etcd {ETCD_PROGRAM}.new
mv {ETCD_PROGRAM}.new {ETCD_PROGRAM}
"""
SAVE_ETCD_CERTIFICATES = f"""
install -d -m 0700 -o persys -g persys {ETCD_CERTIFICATES}
tar -x -f - -C {ETCD_CERTIFICATES}
chown -R persys: {ETCD_CERTIFICATES}
chmod 0600 {ETCD_CERTIFICATES}/etcd.key
"""
SAVE_SECRETS_KEY = f"""
install -d -m 0755 /var/lib/persys
install -d -m 0700 -o persys -g persys /var/lib/persys/scheduler
umask 077
cat >{SECRETS_KEY}.new
[ -s {SECRETS_KEY}.new ] || fail "the key of secrets is empty"
chown persys: {SECRETS_KEY}.new
mv {SECRETS_KEY}.new {SECRETS_KEY}
"""
# A key that exists is kept: without it, stored secrets cannot be read.
CREATE_SECRETS_KEY = f"""
[ -s {SECRETS_KEY} ] || head -c 32 /dev/urandom | base64 | (
{SAVE_SECRETS_KEY}
)
"""


def etcd_certificate(name: str, address: str) -> str:
    """Prints an archive with key, certificate and root. Runs on the first host, with the Python of Persys."""
    return f"""
python=$(sed -n '1s/^#! *//p' "$(command -v persysctl)")
# The hosts ask at the same time, and the first call creates the CA.
exec 8>/run/lock/persys-etcd-ca
flock -w 60 8
"$python" -m persys.cli.hosts.etcd_certificates {ETCD_CA} {name} {address}
"""


def write_file(path: str, content: str) -> str:
    return f"cat >{path}.new <<'END_OF_FILE'\n{content}END_OF_FILE\nmv {path}.new {path}\n"


def has_file(path: str, content: str) -> str:
    return f"cmp -s {path} - <<'END_OF_FILE' || exit 1\n{content}END_OF_FILE\n"
