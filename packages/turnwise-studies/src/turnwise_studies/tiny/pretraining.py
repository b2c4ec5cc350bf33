"""Synthetic pretraining tasks: what the base model learns before it sees any task.

    copying    a random sequence of tokens, repeated
    look-up    some cards about made-up things; then statements about them, each of which needs one
               field or the name of one card

All names are random strings of the tokenizer's own pieces. No question is in a task, and no
episode: what is looked up is named outright, as in `Base of X: Y`. At the end stand batches,
updates, rates and accuracy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from statistics import fmean
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from turnwise.forward.logprobs import token_logprobs
from turnwise_studies.tiny.architecture import SPECIAL_TOKENS

BATCH_TOKENS = 4608
MUON_RATE, ADAM_RATE = 0.015, 5e-3
WARMUP = 20
"""Updates of rising rates."""
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
FORMS = (
    ("{}:", ""),
    ("<think> {}</think><answer>", "</answer>"),
    ("<think> {}</think><search>", "</search>"),
)
"""Before a known value, and after it."""

Item = TypeVar("Item")
Statement = tuple[str, str, str]
"""(a line before it, what is asked for, its value)."""


@dataclass(frozen=True)
class PretrainingTask:
    """Token ids, and which of them are to be predicted: those that can be known."""

    ids: list[int]
    known: list[bool]


class Fact(NamedTuple):
    kind: str
    name: str
    label: str
    value: str


def forward(fact: Fact) -> str:
    return f"{fact.label} of {fact.name}"


def inverse(fact: Fact) -> str:
    return f"{fact.kind} with {fact.label} {fact.value}"


class PretrainingTaskMaker:
    """Makes pretraining tasks from one random stream."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
        self._tokenizer = tokenizer
        self._random = np.random.default_rng(seed)
        texts = {tokenizer.decode([token]).strip() for token in range(len(tokenizer))}
        self.pieces = sorted(text for text in texts if text.isascii() and text.isalpha())

    def copying(self) -> PretrainingTask:
        """A sequence of 4 to 32 random tokens, repeated up to COPY_LENGTH."""
        period = int(self._random.integers(4, COPY_LENGTH // 2))
        low = len(SPECIAL_TOKENS)
        part = self._random.integers(low, len(self._tokenizer), period)
        ids: NDArray[np.int64] = np.resize(part, COPY_LENGTH)
        return PretrainingTask(ids.tolist(), [index > period for index in range(COPY_LENGTH)])

    def look_up(self, cards: int) -> PretrainingTask:
        """`cards` results, then STATEMENTS statements about them."""
        few = self._random.random() < 0.5
        pieces = [self.choose(self.pieces) for _ in range(FEW_PIECES)] if few else self.pieces
        shown, facts = [], []
        values = [self._name(pieces) for _ in range(cards + 1)]
        for number in range(1, cards + 1):
            kind = self.choose(list(FIELDS))
            name = self._name(pieces)
            own = {label: self.choose(values) for label in FIELDS[kind]}
            fields = " ".join(f"{label}: {value}." for label, value in own.items())
            shown.append(f"[{number}] {kind} {name}. {fields}{self._filler()}")
            facts += [Fact(kind, name, label, value) for label, value in own.items()]
        return self.example([shown], [self._statement(facts) for _ in range(STATEMENTS)])

    def _statement(self, facts: Sequence[Fact]) -> Statement:
        fact = self.choose(facts)
        if self.draw(0, 4) == 0:
            return "", f"Find {fact.name}", fact.name
        with_it = {other.name for other in facts if other[2:] == fact[2:]}
        if self.draw(0, 3) == 0 and len(with_it) == 1:
            return "", inverse(fact), fact.name
        return "", forward(fact), fact.value

    def example(
        self, blocks: Sequence[Sequence[str]], statements: Sequence[Statement], whole: bool = False
    ) -> PretrainingTask:
        """Lines in information blocks, then statements: plain, as an answer or as a search. With
        `whole` what is asked for is to be predicted, too, and the tags."""
        text = "\n".join(f"<information> {chr(10).join(lines)}</information>" for lines in blocks)
        ids = self._encode(f"{text}\n")
        known = [False] * len(ids)
        for line, asked, value in statements:
            before, after = FORMS[self.draw(0, len(FORMS))]
            parts = (line, False), (before.format(asked), whole), (f" {value}{after}\n", True)
            for part, told in parts:
                encoded = self._encode(part)
                ids += encoded
                known += [told] * len(encoded)
        return PretrainingTask(ids, known)

    def draw(self, low: int, high: int) -> int:
        """An integer of [low, high)."""
        return int(self._random.integers(low, high))

    def _name(self, of: Sequence[str]) -> str:
        count = int(self._random.integers(1, 6))
        pieces = [self.choose(of) for _ in range(count)]
        style = self._random.random()
        if style < 0.35:
            return "".join(piece.capitalize() for piece in pieces)
        return ("." if style < 0.5 else "_" if style < 0.65 else "").join(pieces)

    def _filler(self) -> str:
        count = int(self._random.integers(0, 10))
        return "".join(f" {self.choose(self.pieces)}" for _ in range(count))

    def choose(self, options: Sequence[Item]) -> Item:
        return options[self.draw(0, len(options))]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def accuracy(model: Qwen3ForCausalLM, examples: Sequence[PretrainingTask]) -> float:
    """Share of known spans (runs of known tokens) whose every token is the likeliest."""
    ids, known = _tensors(examples)
    with torch.inference_mode():
        hit = model(ids[:, :-1]).logits.argmax(-1) == ids[:, 1:]
    rows = zip(hit.tolist(), known[:, 1:].tolist(), strict=True)
    return fmean(
        all(one_hit for one_hit, _ in span)
        for row in rows
        for is_known, span in groupby(zip(*row, strict=True), key=itemgetter(1))
        if is_known
    )


def update(
    model: Qwen3ForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    examples: Sequence[PretrainingTask],
) -> float:
    """One update on the known tokens; returns the loss, their mean cross-entropy in nats."""
    ids, known = _tensors(examples)
    logprob, _ = token_logprobs(
        model, ids, functional.pad(known[:, 1:], (0, 1)), ids[known], 1.0, autocast=True
    )
    loss = -logprob.mean()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def _tensors(examples: Sequence[PretrainingTask]) -> tuple[torch.Tensor, torch.Tensor]:
    length = max(len(example.ids) for example in examples)
    ids = torch.zeros(len(examples), length, dtype=torch.long)
    known = torch.zeros(len(examples), length, dtype=torch.bool)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids)] = torch.tensor(example.ids)
        known[row, : len(example.ids)] = torch.tensor(example.known)
    return ids, known


def make_optimizers(model: Qwen3ForCausalLM) -> list[torch.optim.Optimizer]:
    inner = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    chosen = {id(weight) for weight in inner}
    rest = [weight for weight in model.parameters() if id(weight) not in chosen]
    return [
        torch.optim.Muon(inner, lr=MUON_RATE, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def set_rates(
    optimizers: Sequence[torch.optim.Optimizer], step: int, steps: int, cool_down: float
) -> None:
    """Linear warm-up, constant, linear cool-down over that share of the steps."""
    cooling = (steps - step) / (cool_down * steps) if cool_down else 1.0
    factor = min(1.0, (step + 1) / WARMUP, max(0.02, cooling))
    for optimizer, rate in zip(optimizers, (MUON_RATE, ADAM_RATE), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
