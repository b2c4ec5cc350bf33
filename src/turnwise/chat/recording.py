"""Replies by key, kept in memory and, with a file, beyond this process: a JSON line each.

A key has to hold all that its reply depends on.
"""

import json
from pathlib import Path

from turnwise.errors import InfrastructureError


class Recording:
    """Example: `Recording(Path("user.jsonl"), "the user's model").keep(key, "Yes, please.")`."""

    def __init__(self, path: Path | None, who: str) -> None:
        """Read what the file has, if there is one; `who` gave the replies, for messages."""
        self._path, self._who = path, who
        self._replies = {} if path is None else _read(path)

    def get(self, key: str) -> str | None:
        """The reply of a key; None where there is none yet."""
        return self._replies.get(key)

    def keep(self, key: str, reply: str) -> str:
        """Keep a reply, unless the key has one already: the first is everybody's, and is returned.
        Raises InfrastructureError where the file cannot be written."""
        kept = self._replies.setdefault(key, reply)
        if kept is reply and self._path is not None:
            self._append(self._path, key, reply)
        return kept

    def _append(self, path: Path, key: str, reply: str) -> None:
        """One write of a whole line, begun with its own line break: after a crash too."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps({"key": key, "reply": reply}))
        except OSError as error:
            raise InfrastructureError(f"the recording of {self._who}: {error}") from error


def _read(path: Path) -> dict[str, str]:
    """The recorded replies. A line that was cut off by a crash is asked for again."""
    replies: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").split("\n") if path.is_file() else ():
        try:
            record = json.loads(line)
            key, reply = record["key"], record["reply"]
        except (ValueError, LookupError, TypeError, RecursionError):
            continue
        if isinstance(key, str) and isinstance(reply, str):
            replies.setdefault(key, reply)
    return replies
