"""Contamination: whether a text holds what an environment keeps for evaluation."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from turnwise.types import Task

WORDS = 3
"""Words of an n-gram."""
NEAR = 0.8
"""The share of a held-out prompt's own n-grams from which on a text that has them is near."""
COMMON = 0.01
"""The share of all prompts beyond which an n-gram is a template's, and tells nothing."""

_WORD = re.compile(r"\w+")
Gram = tuple[str, ...]


def normalised(text: str) -> str:
    """The words of a text, in lower case.

    >>> normalised("Who wrote  'Emma'?")
    'who wrote emma'
    """
    return " ".join(_WORD.findall(text.casefold()))


class HeldOut:
    """The prompts of held-out tasks. Example: HeldOut(environment.tasks("heldout"))."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        prompts = {normalised(task.prompt) for task in tasks} - {""}
        counts = Counter(gram for prompt in prompts for gram in _grams(prompt))
        most = max(3, int(COMMON * len(prompts)))
        self._prompts = prompts
        self._own = {
            prompt: {gram for gram in _grams(prompt) if counts[gram] <= most} for prompt in prompts
        }
        self._with: dict[Gram, list[str]] = defaultdict(list)
        for prompt, grams in self._own.items():
            for gram in grams:
                self._with[gram].append(prompt)

    def holds(self, data: Any) -> bool:
        """Whether a text in some JSON is a held-out prompt, or has nearly all that is its own."""
        return any(map(self._near, map(normalised, texts(data))))

    def _near(self, text: str) -> bool:
        found = Counter(prompt for gram in _grams(text) for prompt in self._with.get(gram, ()))
        near = (count >= NEAR * len(self._own[prompt]) for prompt, count in found.items())
        return text in self._prompts or any(near)


def texts(data: Any) -> Iterator[str]:
    """All texts in some JSON but the keys."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list | tuple):
        for one in data.values() if isinstance(data, dict) else data:
            yield from texts(one)


def _grams(text: str) -> set[Gram]:
    words = text.split()
    return {tuple(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1)}
