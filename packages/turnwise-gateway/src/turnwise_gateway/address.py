"""An episode's address at the gateway, and secrets blotted out of what programs say."""

import os
from dataclasses import dataclass
from pathlib import Path

SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""The last words of names of environment variables that hold a secret."""
SHORTEST = 8
"""Characters of a value that is taken for one."""
BLOT = "[secret]"


@dataclass(frozen=True)
class Address:
    """An episode's address. Example: Address("http://127.0.0.1:8123", "1", "…")."""

    server: str
    episode: str
    secret: str
    socket: Path | None = None
    """The server's Unix socket, for agents in a sandbox."""

    @property
    def root(self) -> str:
        """The address for clients of Anthropic's, who add `/v1/messages`."""
        return f"{self.server}/e/{self.episode}/{self.secret}"

    @property
    def openai(self) -> str:
        """The address for clients of OpenAI's, who add `/chat/completions`."""
        return f"{self.root}/v1"


def blotted(text: str, *secrets: str) -> str:
    """The text without these secrets, and without those of the environment.

    >>> blotted("key: abcdefgh", "abcdefgh")
    'key: [secret]'
    """
    named = [value for name, value in os.environ.items() if name.upper().endswith(SECRET_NAMES)]
    known = {one for one in (*secrets, *named) if len(one) >= SHORTEST}
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, BLOT)
    return text
