"""The bytes of single tokens, which may be parts of a character."""

import re
from typing import Any

from turnwise.engines.sampling import TokenTexts

FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
"""A byte, as vocabularies of characters write it."""
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(0x100) if byte not in _VISIBLE]
LETTERS = {chr(byte): byte for byte in _VISIBLE} | {
    chr(0x100 + number): byte for number, byte in enumerate(_HIDDEN)
}
"""The letters by which vocabularies of bytes write them: those that cannot be seen have others."""


class TokenBytes:
    """Gives the bytes of a token after other text. Example: TokenBytes(tokenizer)(5)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._texts = tokenizer, TokenTexts(tokenizer)

    def __call__(self, token: int) -> bytes:
        text = self._texts.piece(token)
        if text is not None:
            return text.encode(errors="replace")
        written = str(self._tokenizer.convert_ids_to_tokens(token))
        fallback = FALLBACK.fullmatch(written)
        if fallback:
            return bytes.fromhex(fallback[1])
        if set(written) <= set(LETTERS):
            return bytes(LETTERS[letter] for letter in written)
        return written.encode(errors="replace")
