"""The statements that an agent may run on a Postgres server, and the functions in them.

The first words of a statement decide, whatever comments and brackets stand around them; the
functions are a matter of the database itself (`SET_UP`). Not here: rights of the role, bounds in
seconds and bytes (`postgres.py`).
"""

import re

from turnwise.errors import ToolError
from turnwise.tools.sql import MAX_STATEMENT_CHARACTERS, check_text, literal

CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE")
STATEMENTS = ("SELECT", "VALUES", "TABLE", "WITH", *CHANGES, "TRUNCATE")
DEFINITIONS, OBJECTS = ("CREATE", "ALTER", "DROP"), ("TABLE", "VIEW", "INDEX", "SEQUENCE")
REFUSED = {
    "BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE PREPARE": (
        "transactions are not available: a statement is one by itself"
    ),
    "SET RESET SHOW DISCARD": "settings are not available",
    "TEMP TEMPORARY": "temporary tables are not available",
}
_GAP = r"(?:[ \t\n\r\f\v(]|--[^\n\r]*|/\*(?:(?!/\*|\*/).)*\*/)*"
_WORD = re.compile(rf"{_GAP}([A-Za-z_]*)", re.DOTALL)
"""The next word after white space, brackets and comments, of which none is inside another."""
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_UNCLEAR = re.compile(r"--|/\*|[\\$]")
"""Characters that make it unclear whether a quote begins or ends a text or a name."""

KEPT = ("nextval", "setval", "currval", "lastval", "clock_timestamp", "timeofday", "pg_table_size")
"""Volatile functions that a statement may use; the last one is for the bound on the tables. What is
not volatile may be used, but for `pg_backend_pid`."""
SET_UP = f"""GRANT CREATE ON SCHEMA public TO PUBLIC;
DO $do$ DECLARE one regprocedure; BEGIN
  FOR one IN SELECT oid FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
    AND (provolatile = 'v' AND prokind IN ('f', 'w')
      AND proname NOT IN ({", ".join(map(literal, KEPT))}) OR proname = 'pg_backend_pid')
  LOOP EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', one); END LOOP;
END $do$"""


def check_statement(statement: str) -> None:
    """Raises ToolError for a statement that is not run."""
    check_text(statement)
    if len(statement) > MAX_STATEMENT_CHARACTERS:
        raise ToolError(f"the statement has more than {MAX_STATEMENT_CHARACTERS} characters")
    plain = statement
    if not _UNCLEAR.search(statement):
        plain = _QUOTED.sub(" ", statement)
    if re.search(r"\bTABLESAMPLE\b", plain, re.IGNORECASE):
        raise ToolError("TABLESAMPLE is not available: it differs from run to run")
    words = _first_words(statement)
    if words[0] in STATEMENTS or (words[0] in DEFINITIONS and words[1] in OBJECTS):
        return
    for refused, why in REFUSED.items():
        if any(word in refused.split() for word in words):
            raise ToolError(why)
    begun = (" ".join(words) if words[0] in DEFINITIONS else words[0]) or "such a statement"
    objects = f"{', '.join(DEFINITIONS)} of {', '.join(OBJECTS)}"
    raise ToolError(f"{begun} is not available; there are {', '.join(STATEMENTS)}, {objects}")


def _first_words(statement: str) -> tuple[str, str]:
    """The first two words in capitals, without what can stand between them; "" for a missing one.

    >>> _first_words("-- a table\\nCREATE UNIQUE /* ! */ INDEX a ON b (c)")
    ('CREATE', 'INDEX')
    >>> _first_words("/* /* */ SELECT */ SET a TO b")
    ('', '')
    """
    found: list[str] = []
    place = 0
    while len(found) < 2:
        match = _WORD.match(statement, place)
        assert match is not None  # it may match nothing
        place = match.end()
        word = match[1].upper()
        if word not in ("OR", "REPLACE", "UNIQUE") or not found:
            found.append(word)
    return found[0], found[1]
