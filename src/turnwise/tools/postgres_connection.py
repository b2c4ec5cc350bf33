"""A connection to a Postgres server on which every wait has a deadline, and only so many rows stay.

psycopg connects, and its libpq (`psycopg.pq`) is asked directly: of its cursors, `execute` keeps
every row of an answer (760 MiB for 40,000 rows of 20 kB, of which 21 are wanted), `stream` does not
say how many rows a statement has changed, and both wait as long as it takes. Values come as text
and are numbers or text: nothing that a server sends is an error here.
Not here: whose statements these are (`postgres.py`); a bound on a single row, which libpq receives
whole.
"""

import contextlib
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.errors import ConfigError, InfrastructureError, ToolError

CONNECT_SECONDS = 10
SERVER_SECONDS = 20.0
"""Seconds for an answer, beyond those that the server itself gives a statement."""
MAX_DIGITS = 300
"""The most digits of a number that is read as one."""

SETTINGS = {
    "client_encoding": "UTF8",
    "timezone": "UTC",
    "datestyle": "ISO",
    "bytea_output": "hex",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}
"""Settings by which text is the same everywhere, and rows come in the same order."""
BOOLEAN, BYTES = 16, 17
NUMBERS = frozenset({20, 21, 23, 700, 701, 1700})
"""Ids of the types int8, int2, int4, float4, float8 and numeric."""

CANCELED, TOO_LARGE = "57014", "53400"
"""Codes of the errors of `statement_timeout` and of `temp_file_limit`."""
SERVERS = ("53100", "53300", "57P", "58", "XX001", "XX002")
"""How codes of errors begin that are the server's and not the statement's: full disks, shutting
down, input and output, damaged data."""


class RefusedError(ToolError):
    """The server does not do what a statement asks for; its words."""


class CutOffError(RefusedError):
    """A statement that went beyond a limit, or failed after it had written: what it leaves besides
    rows is a matter of speed, or counts against the limits."""


@dataclass
class Answer:
    """The result of a statement. Example: Answer("SELECT 1", ["name"], [["ada"]])."""

    tag: str = ""
    """The command's tag, "UPDATE 3" for example."""
    columns: list[str] | None = None
    """None for a statement without a result."""
    rows: list[list[Any]] = field(default_factory=list)
    changed: int = -1
    """Rows; below 0 for a statement that changes none."""
    wrote: bool = False


class Connection:
    """Example: `Connection(address(url), {}).ask("SELECT $1::int", [3]).rows == [[3]]`."""

    def __init__(self, where: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """`where` as `address` gives it; `settings` of the session, added to SETTINGS. Raises
        InfrastructureError if there is no connection in time."""
        import psycopg
        from psycopg.conninfo import make_conninfo

        self.name = f"postgres at {where.get('host', 'localhost')}"
        options = " ".join(f"-c {key}={value}" for key, value in {**SETTINGS, **settings}.items())
        there = {"connect_timeout": str(CONNECT_SECONDS), **where, "options": options}
        try:
            self._connection = psycopg.connect(make_conninfo("", **there), autocommit=True)
        except psycopg.OperationalError as error:
            raise InfrastructureError(f"{self.name}: {_line(error)}") from None
        self._libpq = self._connection.pgconn

    def ask(
        self, statement: str, values: Sequence[Any] = (), *, seconds: float = 0.0, most: int = -1
    ) -> Answer:
        """Run one statement with values for $1 and so on; gives its first `most` rows, all for -1.
        `seconds` are what the server gives it at most.

        Raises RefusedError for what does not work, CutOffError for what is too large or takes too
        long, InfrastructureError for a server that is gone or gives no answer.
        """
        given = [_given(value) for value in values]
        with self._losing():
            self._libpq.send_query_params(statement.encode(), given)
            return self._answer(time.monotonic() + seconds + SERVER_SECONDS, most)

    def do(self, script: str) -> None:
        """Run one statement, or several in one transaction, without results. Raises as `ask`."""
        with self._losing():
            self._libpq.send_query(script.encode())
            self._answer(time.monotonic() + SERVER_SECONDS, 0)

    def close(self) -> None:
        """End it; what was not committed is undone. Idempotent."""
        self._connection.close()

    def _answer(self, end: float, most: int) -> Answer:
        from psycopg.pq import ExecStatus

        self._libpq.set_single_row_mode()
        answer, error = Answer(), None
        while (result := self._next(end)) is not None:
            if result.status not in (
                *(ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.SINGLE_TUPLE),
                ExecStatus.EMPTY_QUERY,
            ):
                error = error or self._error(result)
                continue
            answer.tag = (result.command_status or b"").decode()
            if result.nfields:
                names = [result.fname(column) or b"" for column in range(result.nfields)]
                answer.columns = [name.decode(errors="replace") for name in names]
            if result.ntuples and (most < 0 or len(answer.rows) < most):
                answer.rows.append(
                    [
                        _value(result.get_value(0, column), result.ftype(column))
                        for column in range(result.nfields)
                    ]
                )
        if error is not None:
            raise error
        return answer

    def _next(self, end: float) -> Any:
        """The next result, a row; None after the last."""
        libpq = self._libpq
        while (unsent := libpq.flush()) or libpq.is_busy():
            waiting = select.poll()
            waiting.register(libpq.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
            if not waiting.poll(max(0.0, 1000 * (end - time.monotonic()))):
                raise InfrastructureError(f"{self.name}: no answer in time")
            libpq.consume_input()
        return libpq.get_result()

    def _error(self, result: Any) -> Exception:
        from psycopg.pq import ConnStatus, DiagnosticField

        fields = (
            DiagnosticField.SQLSTATE,
            DiagnosticField.MESSAGE_PRIMARY,
            DiagnosticField.MESSAGE_HINT,
        )
        code, text, hint = (
            (result.error_field(one) or b"").decode(errors="replace") for one in fields
        )
        if self._libpq.status != ConnStatus.OK or code.startswith(SERVERS) or not code:
            return InfrastructureError(f"{self.name}: {text or _line(result.error_message)}")
        if code == CANCELED:
            return CutOffError("the statement takes too long")
        if code == TOO_LARGE:
            return CutOffError("the statement needs too much room")
        if text.startswith("cannot insert multiple commands"):
            return RefusedError("one statement at a time")
        return RefusedError(f"{text}. {hint}" if hint else text)

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.OperationalError as error:
            raise InfrastructureError(f"{self.name}: {_line(error)}") from None


def address(url: str) -> dict[str, str]:
    """A connection string of libpq in its parts. Raises ConfigError, which does not repeat it: it
    may have a password."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {key: str(value) for key, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError:
        form = "postgresql://user:password@host:port/database"
        raise ConfigError(f"postgres: the url is no connection string: write {form}") from None


def _given(value: Any) -> bytes | None:
    """A value as text."""
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    return None if value is None else str(value).encode()


def _value(text: bytes | None, kind: int) -> Any:
    """A value in text as Python has it."""
    if text is None:
        return None
    if kind == BOOLEAN:
        return "true" if text == b"t" else "false"
    if kind == BYTES:
        return bytes.fromhex(text[2:].decode())
    if kind in NUMBERS and len(text) <= MAX_DIGITS:
        return int(text) if text.removeprefix(b"-").isdigit() else float(text)
    return text.decode(errors="replace")


def _line(error: object) -> str:
    return " ".join(str(error).split())
