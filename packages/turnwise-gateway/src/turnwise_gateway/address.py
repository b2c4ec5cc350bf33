"""An episode's address at the gateway: plain data."""

from dataclasses import dataclass
from pathlib import Path


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
