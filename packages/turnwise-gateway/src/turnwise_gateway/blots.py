"""Known secrets, blotted out of the words of a program before they are stored."""

import os

SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""The last words of names of environment variables that hold a secret."""
SHORTEST = 8
"""Characters of a value that is taken for one."""
BLOT = "[secret]"


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
