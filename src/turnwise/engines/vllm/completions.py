"""A turn to be sampled as a request to vLLM, and vLLM's answer as a completion.

Not here: sending it (`client.py`).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from turnwise.engines.base import Completion, Sampling, StopReason
from turnwise.engines.sampling import StopMatcher
from turnwise.errors import ConfigError, InfrastructureError


class AbortedError(InfrastructureError):
    """The server gave the request up, because another request ordered it."""


def check_supported(sampling: Sampling) -> None:
    """Raise ConfigError for options that vLLM lacks, or reads in another way."""
    if sampling.temperature > 0 and sampling.top_p < 1 and sampling.min_p > 0:
        raise ConfigError(
            "vLLM applies min_p before top_p, so that together they leave other tokens than they "
            "say: set rollout.top_p or rollout.min_p, not both"
        )
    if sampling.processors:
        raise ConfigError(
            "logit processors are functions of this process, and vLLM samples in its own: use the "
            "embedded engine for them"
        )


def request_body(
    model: str, prompt: Sequence[int], sampling: Sampling, most: int, ends: Iterable[int]
) -> dict[str, Any]:
    """The body of POST /v1/completions, for at most `most` tokens; `ends` end the text.

    Tokens that are special in the vocabulary are kept in the text that stop strings are looked for
    in, since a scaffold's tags may be such tokens.
    """
    return {
        "model": model,
        "prompt": [int(token) for token in prompt],
        "max_tokens": most,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "seed": sampling.seed % 2**63,
        "stop": list(sampling.stop),
        "include_stop_str_in_output": True,
        "stop_token_ids": sorted(ends),
        "ignore_eos": False,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "logprobs": 0,
        "return_token_ids": True,
    }


def read_answer(answer: dict[str, Any]) -> tuple[list[int], list[float], str]:
    """Tokens, their log-probabilities and the reason to stop, from the answer's only choice.

    Raises AbortedError for a request that the server gave up, InfrastructureError for an answer
    without tokens or with log-probabilities that are not numbers.
    """
    try:
        choice = answer["choices"][0]
        reason = choice["finish_reason"]
        if reason == "abort":
            raise AbortedError("vLLM gave the request up")
        tokens = [int(token) for token in choice["token_ids"]]
        logprobs = [float(value) for value in choice["logprobs"]["token_logprobs"]]
    except (LookupError, TypeError, ValueError):
        raise InfrastructureError("vLLM's answer has no token ids with log-probabilities") from None
    if not tokens or len(tokens) != len(logprobs):
        raise InfrastructureError(
            f"vLLM's answer has {len(tokens)} tokens and {len(logprobs)} log-probabilities"
        )
    if not all(math.isfinite(value) for value in logprobs):
        raise InfrastructureError("the model's logits are not numbers: its weights have diverged")
    return tokens, logprobs, str(reason)


def completion(
    answer: dict[str, Any],
    sampling: Sampling,
    matcher: StopMatcher,
    ends: frozenset[int],
    version: int,
) -> Completion:
    """The sampled completion, cut behind the first token that ends the turn, should there be
    more."""
    tokens, logprobs, reason = read_answer(answer)
    for count, token in enumerate(tokens, 1):
        if matcher.feed(token):
            return Completion(tokens[:count], logprobs[:count], StopReason.STOP_STRING, version)
        if token in ends:
            return Completion(tokens[:count], logprobs[:count], StopReason.END_OF_TEXT, version)
    if reason == "stop":
        return Completion(tokens, logprobs, StopReason.STOP_STRING, version)
    whole = len(tokens) >= sampling.max_tokens
    stop = StopReason.MAX_TOKENS if whole else StopReason.CONTEXT
    return Completion(tokens, logprobs, stop, version)
