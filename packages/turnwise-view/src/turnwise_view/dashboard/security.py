"""The dashboard's door: a secret for each start, the right host, and headers that allow nothing.

The page's address has the secret once; a cookie has it from then on. A page of another site cannot
send the cookie (SameSite), read an answer, or pass for this one by a name that it has resolve to
this machine (Host).
"""

import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class AccessGuard:
    """Lets in who has the secret. Example: `AccessGuard("127.0.0.1", 8080).refusal(scope)`."""

    def __init__(self, host: str, port: int) -> None:
        """The address that is served; of one that is not this machine's own any name will do."""
        self.secret = secrets.token_urlsafe(24)
        self._cookie = f"turnwise-{port}"
        self._local = (f"[{host}]" if ":" in host else host) in LOOPBACK

    def refusal(self, headers: Mapping[str, str], query: str) -> tuple[int, str] | None:
        """The status and the reason with which a request is refused; None for one that is let
        in."""
        # Any port will do: that of a tunnel's end is another one.
        name = re.sub(r":\d*$", "", headers.get("host", ""))
        if self._local and name not in LOOPBACK:
            return 403, "this address is another one's: open the one that `turnwise view` printed"
        if self.asks(query) or self._knows(headers.get("cookie", "")):
            return None
        return 401, "open the whole address that `turnwise view` printed, with ?token=…"

    def asks(self, query: str) -> bool:
        given = parse_qs(query).get("token", [""])[0]
        return hmac.compare_digest(given.encode(), self.secret.encode())

    @property
    def cookie(self) -> str:
        """The header that leaves the secret with a browser."""
        return f"{self._cookie}={self.secret}; HttpOnly; SameSite=Strict; Path=/"

    def _knows(self, cookies: str) -> bool:
        pairs = (cookie.strip().partition("=") for cookie in cookies.split(";"))
        given: dict[str, Any] = {name: value for name, _, value in pairs}
        known = given.get(self._cookie, "")
        return hmac.compare_digest(known.encode(), self.secret.encode())
