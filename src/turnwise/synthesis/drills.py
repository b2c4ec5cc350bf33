"""Reading drills: what the base model learns before it sees any task.

    copying    a random sequence of tokens, repeated
    look-up    some cards, in the form of search results, about made-up things; then statements
               about them, each of which needs one field or the name of one card

All names are random strings of the tokenizer's own pieces: no document, question or answer of an
environment is in a drill.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from turnwise.models.tiny import SPECIAL_TOKENS

FIELDS = {
    "Class": ("Module", "Base"),
    "Function": ("Module",),
    "Method": ("Class",),
    "Module": ("Package",),
}
STATEMENTS = 6
FEW_PIECES = 12
"""Half of the look-ups have names of so few pieces that a name is not known by its first ones."""
COPY_LENGTH = 48


@dataclass(frozen=True)
class Drill:
    """Token ids, and which of them are to be predicted: those that can be known."""

    ids: list[int]
    known: list[bool]


class DrillMaker:
    """Makes drills from one random stream. Example: DrillMaker(tokenizer, 0).look_up(cards=3)."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
        self._tokenizer = tokenizer
        self._random = np.random.default_rng(seed)
        texts = {tokenizer.decode([token]).strip() for token in range(len(tokenizer))}
        self.pieces = sorted(text for text in texts if text.isascii() and text.isalpha())

    def copying(self) -> Drill:
        """A sequence of 4 to 32 random tokens, repeated up to COPY_LENGTH."""
        period = int(self._random.integers(4, COPY_LENGTH // 2))
        low = len(SPECIAL_TOKENS)
        part = self._random.integers(low, len(self._tokenizer), period)
        ids: NDArray[np.int64] = np.resize(part, COPY_LENGTH)
        return Drill(ids.tolist(), [index > period for index in range(COPY_LENGTH)])

    def look_up(self, cards: int) -> Drill:
        """`cards` results, then STATEMENTS statements about them."""
        few = self._random.random() < 0.5
        pieces = [self._choose(self.pieces) for _ in range(FEW_PIECES)] if few else self.pieces
        shown, facts = [], []
        values = [self._name(pieces) for _ in range(cards + 1)]
        for number in range(1, cards + 1):
            kind = self._choose(list(FIELDS))
            name = self._name(pieces)
            own = {label: self._choose(values) for label in FIELDS[kind]}
            fields = " ".join(f"{label}: {value}." for label, value in own.items())
            shown.append(f"[{number}] {kind} {name}. {fields}{self._filler()}")
            facts += [(label, name, value) for label, value in own.items()]
        ids = self._encode("<information> " + "\n".join(shown) + "</information>\n")
        known = [False] * len(ids)
        for _ in range(STATEMENTS):
            asked, told = self._statement(*facts[int(self._random.integers(len(facts)))])
            ids += asked + told
            known += [False] * len(asked) + [True] * len(told)
        return Drill(ids, known)

    def _statement(self, label: str, name: str, value: str) -> tuple[list[int], list[int]]:
        """What is asked of a fact and what is told: plainly, as an answer, or as a search."""
        form = int(self._random.integers(3))
        asked = (f"{label} of {name}:", f"Question: {label} of {name}\n", f"Find {name}\n")[form]
        told = (f" {value}\n", f"<answer> {value}</answer>\n", f"<search> {name}</search>\n")[form]
        return self._encode(asked), self._encode(told)

    def draw(self, low: int, high: int) -> int:
        """A random integer of [low, high)."""
        return int(self._random.integers(low, high))

    def _name(self, of: Sequence[str]) -> str:
        count = int(self._random.integers(1, 6))
        pieces = [self._choose(of) for _ in range(count)]
        style = self._random.random()
        if style < 0.35:
            return "".join(piece.capitalize() for piece in pieces)
        return ("." if style < 0.5 else "_" if style < 0.65 else "").join(pieces)

    def _filler(self) -> str:
        count = int(self._random.integers(0, 10))
        return "".join(f" {self._choose(self.pieces)}" for _ in range(count))

    def _choose(self, options: Sequence[str]) -> str:
        return options[int(self._random.integers(len(options)))]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
