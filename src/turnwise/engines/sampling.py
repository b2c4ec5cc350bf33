"""Sampling of tokens from logits, one whole batch at a time, and the end of a completion.

Randomness is a counter-based stream for each request: the same seed draws the same numbers whatever
is sampled beside it.

Next: `rewards/composition.py`.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random.bit_generator import ISeedSequence
from torch import Tensor

from turnwise.engines.base import Sampling
from turnwise.errors import ConfigError, InfrastructureError

REPLACEMENT = "\ufffd"
LONGEST_CHARACTER = 4
"""Bytes of the longest character in UTF-8: no more tokens than that can share one."""


def check_sampling(sampling: Sampling) -> None:
    """Raise ConfigError for what cannot be honoured."""
    if sampling.max_tokens < 1:
        raise ConfigError(f"sampling max_tokens is {sampling.max_tokens}: it must be at least 1")
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise ConfigError(f"sampling temperature is {sampling.temperature}: it must be at least 0")
    if sampling.top_k < 0:
        raise ConfigError(f"sampling top_k is {sampling.top_k}: give at least 1, or 0 for all")
    if not 0 < sampling.top_p <= 1:
        raise ConfigError(f"sampling top_p is {sampling.top_p}: it must be above 0, at most 1")
    if not 0 <= sampling.min_p <= 1:
        raise ConfigError(f"sampling min_p is {sampling.min_p}: it must be from 0 to 1")
    if "" in sampling.stop:
        raise ConfigError("sampling stop has an empty string, which would stop everything")


def check_prompt(prompt: Sequence[int], vocabulary: int) -> np.ndarray:
    """The prompt as int64[tokens]. Raises ConfigError for an empty one, or an unknown token."""
    ids = np.array(prompt, np.int64)
    if len(ids) == 0:
        raise ConfigError("the prompt is empty: there is nothing to continue")
    if ids.min() < 0 or ids.max() >= vocabulary:
        raise ConfigError(f"the prompt has a token outside the {vocabulary} of the model")
    return ids


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a text: those of the model's generation config and of the tokenizer."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    several = configured if isinstance(configured, list) else [configured]
    return frozenset(end for end in (*several, tokenizer.eos_token_id) if end is not None)


class Key(ISeedSequence):
    """The key of a stream as it is: NumPy's own asks the system for entropy, which takes longer."""

    def __init__(self, key: int) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray:
        return np.array([self._key, 0], dtype)[:n_words]


def uniforms(seed: int, count: int) -> np.ndarray:
    """float64[count] in [0, 1): the same numbers for the same seed, whatever the count."""
    key: Any = Key(seed % 2**64)  # which NumPy's annotations leave out
    return np.random.Generator(np.random.Philox(key)).random(count)


class Drawn(NamedTuple):
    """Tokens drawn from the logits of n rows."""

    tokens: list[int]
    logprobs: list[float]
    kept: list[np.ndarray | None]
    """int32, the tokens left in a row; None where they are not to be returned, or all were left."""


def sample(logits: torch.Tensor, samplings: Sequence[Sampling], draws: Sequence[float]) -> Drawn:
    """Tokens and their log-probabilities, from float32[n, vocabulary] logits.

    Temperature 0 takes the most likely token, with its log-probability at temperature 1. Others
    invert the cumulative distribution of what top_k, top_p and min_p leave at `draws`, float[n] in
    [0, 1). Raises InfrastructureError when logits are not numbers.
    """
    greedy = [sampling.temperature == 0 for sampling in samplings]
    # The recorded log-probability is of the distribution that is drawn from: at the temperature,
    # and below over what truncation leaves.
    logprobs = torch.log_softmax(_scaled(logits, samplings), dim=-1)
    if all(greedy):
        tokens = logprobs.argmax(-1, keepdim=True)
    else:
        logprobs = _truncated(logprobs, samplings)
        tokens = _invert(logprobs, torch.tensor(draws, dtype=torch.float32, device=logits.device))
        if any(greedy):
            choice = torch.tensor(greedy, device=logits.device)[:, None]
            tokens = torch.where(choice, logprobs.argmax(-1, keepdim=True), tokens)
    chosen = logprobs.gather(-1, tokens).squeeze(-1).tolist()
    if any(math.isnan(value) for value in chosen):
        raise InfrastructureError("the model's logits are not numbers: its weights have diverged")
    return Drawn(tokens.squeeze(-1).tolist(), chosen, _kept(logprobs, samplings))


def _kept(logprobs: torch.Tensor, samplings: Sequence[Sampling]) -> list[np.ndarray | None]:
    kept: list[np.ndarray | None] = [None] * len(samplings)
    asked = [row for row, one in enumerate(samplings) if one.returns_kept and _leaves_out(one)]
    if asked:
        left = logprobs[asked] > -math.inf
        ends = left.sum(-1).cumsum(0)[:-1].tolist()
        ids = left.nonzero()[:, 1].to(torch.int32).cpu().numpy()
        for row, own in zip(asked, np.split(ids, ends), strict=True):
            kept[row] = own
    return kept


def _scaled(logits: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    scales = [sampling.temperature or 1.0 for sampling in samplings]
    if all(scale == 1.0 for scale in scales):
        return logits
    return logits / torch.tensor(scales, device=logits.device)[:, None]


def _truncated(logprobs: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    rows = [row for row, sampling in enumerate(samplings) if _leaves_out(sampling)]
    if not rows:
        return logprobs
    chosen = [samplings[row] for row in rows]
    options = (
        torch.tensor([sampling.top_k for sampling in chosen], device=logprobs.device),
        torch.tensor([sampling.top_p for sampling in chosen], device=logprobs.device),
        torch.tensor([sampling.min_p for sampling in chosen], device=logprobs.device),
    )
    where = torch.tensor(rows, device=logprobs.device)
    return logprobs.index_copy(0, where, truncate(logprobs[where], *options))


def _leaves_out(sampling: Sampling) -> bool:
    options = sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0
    return sampling.temperature > 0 and options


def _invert(logprobs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """int64[n, 1], the first token whose cumulative probability exceeds the draw. The threshold
    stays below the total, so a token of probability 0 is never found."""
    mass = logprobs.exp().cumsum(-1)
    total = mass[:, -1:]
    thresholds = torch.minimum(draws[:, None] * total, total.nextafter(torch.zeros_like(total)))
    # Only in a row of NaN is there none. The clamp keeps it in range, and `sample` reports it.
    return torch.searchsorted(mass, thresholds, right=True).clamp_(max=mass.shape[-1] - 1)


class TokenTexts:
    """The text that each token adds, decoded once by a transformers tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str | None] = {}
        self._anchor, self._anchor_text = self._find_anchor()

    def piece(self, token: int) -> str | None:
        """The token's text after other text; None for bytes that are no whole characters."""
        if token not in self._known:
            self._known[token] = self._look_up(token)
        return self._known[token]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens that follow other text, special tokens included."""
        return self._raw([self._anchor, *tokens]).removeprefix(self._anchor_text)

    def _look_up(self, token: int) -> str | None:
        # Tokenizers decode a text's first token in another way, without its leading space for one.
        text = self._raw([self._anchor, token])
        if REPLACEMENT in text or not text.startswith(self._anchor_text):
            return None
        return text.removeprefix(self._anchor_text)

    def _raw(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(
            tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def _find_anchor(self) -> tuple[int, str]:
        """A token that decodes to plain text, so that others are decoded as its continuation."""
        special = set(self._tokenizer.all_special_ids)
        for token in range(len(self._tokenizer)):
            text = self._raw([token])
            if token not in special and text.strip() and REPLACEMENT not in text:
                return token, text
        raise ConfigError("the tokenizer has no token that decodes to text: is it the right one?")


class StopMatcher:
    """Looks for stop strings in the text of one completion, token by token."""

    def __init__(self, stop: tuple[str, ...], texts: TokenTexts) -> None:
        self._stop = stop
        self._texts = texts
        # A stop string that is not complete has at most so many characters.
        self._memory = max(map(len, stop), default=1) - 1
        self._lasts = frozenset(text[-1] for text in stop)
        self._tail = ""
        self._partial: list[int] = []

    def feed(self, token: int) -> bool:
        """True when the token completes a stop string, wherever in the token it ends."""
        if not self._stop:
            return False
        piece = self._texts.piece(token)
        if piece is None or self._partial:
            text = self._join(token)
        else:
            text = self._tail + piece
            self._remember(text)
            # A stop string is completed by its last character, or not at all.
            if self._lasts.isdisjoint(piece):
                return False
        return any(stop in text for stop in self._stop)

    def _join(self, token: int) -> str:
        self._partial.append(token)
        text = self._tail + self._texts.decode(self._partial)
        if not text.endswith(REPLACEMENT):
            self._remember(text)
            self._partial = []
        # Still no character: the first of these bytes belongs to none.
        elif len(self._partial) == LONGEST_CHARACTER:
            self._remember(self._tail + self._texts.decode(self._partial[:1]))
            del self._partial[0]
        return text

    def _remember(self, text: str) -> None:
        self._tail = text[-self._memory :] if self._memory else ""


def truncate(logprobs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Log-probabilities of what is left, float32[n, vocabulary] as given, which sum to 1 again;
    -inf for tokens left out.

    In transformers' order: the `top_k` most likely tokens, int64[n], 0 for all; of these the fewest
    that have at least `top_p`, float32[n], of their probability, above 0, 1 for all (arXiv
    1904.09751); of these those at least `min_p`, float32[n], 0 to 1, times as likely as the most
    likely, which always stays (arXiv 2407.01082). Of equally likely tokens the first come first.
    """
    ordered, tokens = logprobs.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(logprobs.shape[1], device=logprobs.device)
    most = torch.where(top_k > 0, top_k, len(ranks))[:, None]
    kept = ranks < most
    mass = ordered.exp().double() * kept  # sums over a large vocabulary in float32 drift
    before = mass.cumsum(-1) - mass
    share = top_p[:, None]
    kept &= (before < share * mass.sum(-1, keepdim=True)) | (share >= 1)  # 1: however it rounds
    kept &= ordered >= ordered[:, :1] + min_p.log()[:, None]
    kept[:, 0] = True
    left = ordered.masked_fill(~kept, -math.inf).log_softmax(-1)
    return torch.empty_like(left).scatter_(1, tokens, left)
