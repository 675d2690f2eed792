"""The database of the CA: issued certificates, join tokens and the audit log.

One SQLite file, shared with commands on the same host: each change is one transaction that checks its
preconditions again. Token secrets are stored as hashes. The number of recorded rejections is limited, because
any client can cause them.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from persys.core.auth.enrolment import StoredJoinToken
from persys.core.auth.permissions import permissions_of
from persys.core.auth.tokens import LIFE_MOST as TOKEN_LIFE_MOST
from persys.errors import ConflictError, SettingsError, StoreUnavailableError
from persys.model.identity import Identity, Permission, Role
from persys.wire.ca.messages import AuditLine, CertificateView

REFUSALS_MAX = 10_000
LINES_PER_AUTHOR_MAX = 10_000
REFUSED = "refused"
_SCHEMA = 2
_TABLES = """
CREATE TABLE certificates (
    serial TEXT PRIMARY KEY, role TEXT NOT NULL, name TEXT NOT NULL, hosts TEXT NOT NULL,
    issued_at TEXT NOT NULL, expires_at TEXT NOT NULL, asked_by TEXT NOT NULL, how TEXT NOT NULL,
    revoked_at TEXT, revoked_by TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '');
CREATE INDEX certificates_by_holder ON certificates (role, name COLLATE NOCASE);
CREATE INDEX certificates_revoked ON certificates (expires_at) WHERE revoked_at IS NOT NULL;
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, secret_hash TEXT NOT NULL, role TEXT NOT NULL, name TEXT NOT NULL,
    hosts TEXT NOT NULL, created_at TEXT NOT NULL, expires_at TEXT NOT NULL,
    created_by TEXT NOT NULL, used_at TEXT, serial TEXT NOT NULL DEFAULT '');
CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, deed TEXT NOT NULL,
    who TEXT NOT NULL, what TEXT NOT NULL, detail TEXT NOT NULL, serial TEXT NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
# Schema migrations. `enrolled_at` of older certificates is unknown.
_STEPS = (_TABLES, "ALTER TABLE certificates ADD COLUMN enrolled_at TEXT")
_CERTIFICATE = (
    "serial, role, name, hosts, issued_at, expires_at, asked_by, how,"
    " revoked_at, revoked_by, reason, enrolled_at"
)
_INVITATION = (
    "id, secret_hash, role, name, hosts, created_at, expires_at, created_by, used_at, serial"
)
_WAIT_SECONDS = 5.0
# A certificate is relevant until it expires; one that may create tokens, until its last token expires.
_TOKEN_CREATORS = sorted(role for role in Role if Permission.TOKENS in permissions_of(role))
_RELEVANT = "(expires_at > ? OR (role IN (SELECT value FROM json_each(?)) AND expires_at > ?))"


class CaDatabase:
    def __init__(self, path: Path, *, trust_domain: str) -> None:
        """Raises SettingsError if the file cannot be opened."""
        self._path = path
        try:
            self._connection = _connect(path)
            self._check_trust_domain(trust_domain)
        except (sqlite3.Error, OSError) as err:
            raise SettingsError(f"{path}: {err}") from err

    def close(self) -> None:
        self._connection.close()

    def add_certificate(
        self, view: CertificateView, line: AuditLine, *, token_id: str = "", renews: str = ""
    ) -> None:
        """Raises ConflictError, without a change, if the token was used or the certificate with the serial
        `renews` was revoked in the meantime."""
        with self._transaction():
            before = self.certificate(renews) if renews else None
            if before is not None and before.revoked_at is not None:
                raise ConflictError("the certificate was revoked in the meantime")
            if token_id:
                used = self._connection.execute(
                    "UPDATE tokens SET used_at = ?, serial = ? WHERE id = ? AND used_at IS NULL",
                    (_text(view.issued_at), view.serial, token_id),
                )
                if used.rowcount != 1:
                    raise ConflictError("the token was used in the meantime")
            self._connection.execute(
                f"INSERT INTO certificates ({_CERTIFICATE}) VALUES (?,?,?,?,?,?,?,?,NULL,'','',?)",  # noqa: S608
                (
                    *(view.serial, view.role, view.name, _encode_list(view.hosts)),
                    *(_text(view.issued_at), _text(view.expires_at), view.asked_by, view.how),
                    _text(view.enrolled_at or view.issued_at),
                ),
            )
            self._add_line(line)

    def add_token(self, token: StoredJoinToken, line: AuditLine) -> None:
        with self._transaction():
            self._connection.execute(
                f"INSERT INTO tokens ({_INVITATION}) VALUES (?,?,?,?,?,?,?,?,NULL,'')",  # noqa: S608
                (
                    *(token.id, token.secret_hash, token.identity.role, token.identity.name),
                    *(_encode_list(token.hosts), _text(token.created_at), _text(token.expires_at)),
                    token.created_by,
                ),
            )
            self._add_line(line)

    def revoke(
        self,
        choose: Callable[[], Sequence[CertificateView]],
        line: Callable[[CertificateView], AuditLine],
    ) -> tuple[str, ...]:
        """Revoke the certificates that `choose` returns in this transaction, and return their serials.

        Certificates that are already revoked are not changed.
        """
        with self._transaction():
            chosen = choose()
            for view in chosen:
                entry = line(view)
                self._connection.execute(
                    "UPDATE certificates SET revoked_at = ?, revoked_by = ?, reason = ?"
                    " WHERE serial = ? AND revoked_at IS NULL",
                    (_text(entry.at), entry.who, entry.detail, view.serial),
                )
                self._add_line(msgspec.structs.replace(entry, serial=view.serial))
        return tuple(view.serial for view in chosen)

    def add_line(self, line: AuditLine) -> None:
        with self._transaction():
            self._add_line(line)

    def token(self, token_id: str) -> StoredJoinToken | None:
        rows = self._read(f"SELECT {_INVITATION} FROM tokens WHERE id = ?", token_id)  # noqa: S608
        return _token(rows[0]) if rows else None

    def tokens(self, limit: int) -> list[StoredJoinToken]:
        """Newest first."""
        query = f"SELECT {_INVITATION} FROM tokens ORDER BY created_at DESC, id LIMIT ?"  # noqa: S608
        return [_token(row) for row in self._read(query, limit)]

    def certificate(self, serial: str) -> CertificateView | None:
        query = f"SELECT {_CERTIFICATE} FROM certificates WHERE serial = ?"  # noqa: S608
        rows = self._read(query, serial)
        return _certificate(rows[0]) if rows else None

    def certificates(self, limit: int) -> list[CertificateView]:
        """Newest first."""
        query = f"SELECT {_CERTIFICATE} FROM certificates ORDER BY issued_at DESC, serial LIMIT ?"  # noqa: S608
        return [_certificate(row) for row in self._read(query, limit)]

    def certificates_of(self, identity: Identity, now: datetime) -> list[CertificateView]:
        """Valid certificates of the identity; the name is compared case-insensitively."""
        query = (
            f"SELECT {_CERTIFICATE} FROM certificates"  # noqa: S608
            " WHERE role = ? AND name = ? COLLATE NOCASE AND expires_at > ? AND revoked_at IS NULL"
        )
        rows = self._read(query, identity.role, identity.name, _text(now))
        return [_certificate(row) for row in rows]

    def revocable(
        self, identity: Identity, now: datetime, *, enrolled_at: datetime | None = None
    ) -> list[CertificateView]:
        """Relevant certificates of a holder that are not revoked, newest first.

        With `enrolled_at` only those of one renewal chain: renewals keep the enrolment time.
        """
        chain = "" if enrolled_at is None else _text(enrolled_at)
        query = (
            f"SELECT {_CERTIFICATE} FROM certificates"  # noqa: S608
            f" WHERE role = ? AND name = ? COLLATE NOCASE AND revoked_at IS NULL AND {_RELEVANT}"
            " AND (? = '' OR coalesce(enrolled_at, issued_at) = ?) ORDER BY issued_at DESC, serial"
        )
        rows = self._read(query, identity.role, identity.name, *_relevant(now), chain, chain)
        return [_certificate(row) for row in rows]

    def issued_since(self, identity: Identity, since: datetime) -> int:
        rows = self._read(
            "SELECT count(*) FROM certificates WHERE role = ? AND name = ? COLLATE NOCASE"
            " AND issued_at > ?",
            *(identity.role, identity.name, _text(since)),
        )
        return int(rows[0][0])

    def revoked(self, now: datetime) -> list[CertificateView]:
        """All relevant revoked certificates."""
        query = (
            f"SELECT {_CERTIFICATE} FROM certificates"  # noqa: S608
            f" WHERE revoked_at IS NOT NULL AND {_RELEVANT} ORDER BY revoked_at, serial"
        )
        return [_certificate(row) for row in self._read(query, *_relevant(now))]

    def audit(self, limit: int) -> list[AuditLine]:
        """The newest lines, oldest first."""
        rows = self._read(
            "SELECT number, at, deed, who, what, detail, serial FROM audit"
            " ORDER BY number DESC LIMIT ?",
            limit,
        )
        return [
            AuditLine(int(number), datetime.fromisoformat(at), *rest)
            for number, at, *rest in reversed(rows)
        ]

    def delete_expired(self, before: datetime, now: datetime) -> None:
        """Delete records that ended before then, and audit lines above the limits."""
        over = _text(before)
        with self._transaction():
            self._connection.execute(
                f"DELETE FROM certificates WHERE expires_at < ? AND NOT {_RELEVANT}",  # noqa: S608
                (over, *_relevant(now)),
            )
            self._connection.execute("DELETE FROM tokens WHERE expires_at < ?", (over,))
            self._connection.execute("DELETE FROM audit WHERE at < ?", (over,))
            self._connection.execute(
                "DELETE FROM audit WHERE deed = ? AND number NOT IN"
                " (SELECT number FROM audit WHERE deed = ? ORDER BY number DESC LIMIT ?)",
                (REFUSED, REFUSED, REFUSALS_MAX),
            )
            self._connection.execute(
                "DELETE FROM audit WHERE number IN (SELECT number FROM (SELECT number,"
                " row_number() OVER (PARTITION BY who ORDER BY number DESC) AS nth FROM audit)"
                " WHERE nth > ?)",
                (LINES_PER_AUTHOR_MAX,),
            )

    def _check_trust_domain(self, trust_domain: str) -> None:
        self._connection.execute(
            "INSERT OR IGNORE INTO facts VALUES ('trust_domain', ?)", (trust_domain,)
        )
        ((stored,),) = self._connection.execute(
            "SELECT value FROM facts WHERE name = 'trust_domain'"
        ).fetchall()
        if stored != trust_domain:
            self._connection.close()
            raise SettingsError(
                f"invalid PERSYS_TRUST_DOMAIN {trust_domain!r}: expected {stored!r}, the trust domain of "
                "this CA; a change would invalidate all issued certificates"
            )

    def _add_line(self, line: AuditLine) -> None:
        self._connection.execute(
            "INSERT INTO audit (at, deed, who, what, detail, serial) VALUES (?,?,?,?,?,?)",
            (_text(line.at), line.deed, line.who, line.what, line.detail, line.serial),
        )

    def _read(self, query: str, *values: object) -> list[tuple[str, ...]]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as err:
            raise StoreUnavailableError(f"{self._path}: {err}") from err

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        except sqlite3.Error as err:
            raise StoreUnavailableError(f"{self._path}: {err}") from err


def _connect(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(
        path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        if schema > _SCHEMA:
            raise SettingsError(
                f"{path}: written by a newer version of persys-ca; install that version"
            )
        for step in _STEPS[schema:]:
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_SCHEMA}")
        connection.execute("COMMIT")
    except (sqlite3.Error, SettingsError):
        connection.close()
        raise
    return connection


def _relevant(now: datetime) -> tuple[str, str, str]:
    """The parameters of _MATTERS."""
    return _text(now), _encode_list(_TOKEN_CREATORS), _text(now - TOKEN_LIFE_MOST)


def _text(at: datetime) -> str:
    return at.isoformat(timespec="microseconds")  # fixed width, so that strings sort by time


def _encode_list(words: Sequence[str]) -> str:
    return msgspec.json.encode(list(words)).decode()


def _decode_list(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])


def _maybe_at(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _certificate(row: tuple[str, ...]) -> CertificateView:
    serial, role, name, hosts, issued_at, expires_at, asked_by, how, *revocation, enrolled_at = row
    revoked_at, by, reason = revocation
    return CertificateView(
        *(serial, role, name, _decode_list(hosts)),
        issued_at=datetime.fromisoformat(issued_at),
        expires_at=datetime.fromisoformat(expires_at),
        asked_by=asked_by,
        how=how,
        revoked_at=_maybe_at(revoked_at),
        revoked_by=by,
        reason=reason,
        enrolled_at=_maybe_at(enrolled_at),
    )


def _token(row: tuple[str, ...]) -> StoredJoinToken:
    token_id, secret_hash, role, name, hosts, created_at, expires_at, by, used_at, serial = row
    return StoredJoinToken(
        id=token_id,
        secret_hash=secret_hash,
        identity=Identity(Role(role), name),
        created_at=datetime.fromisoformat(created_at),
        expires_at=datetime.fromisoformat(expires_at),
        created_by=by,
        hosts=_decode_list(hosts),
        used_at=_maybe_at(used_at),
        serial=serial,
    )
