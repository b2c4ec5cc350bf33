"""A turn to be sampled as a request to vLLM, and vLLM's answer as a completion."""

import base64
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.engines.base import Completion, Sampling, StopReason
from turnwise.engines.sampling import StopMatcher
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.forward.images import ImageReader, plain
from turnwise.tokens import Image

NO_NUMBER = -9999.0
"""vLLM's log-probability of a token whose logits are not numbers."""


class AbortedError(InfrastructureError):
    """The server gave the request up, because another request ordered it."""


@dataclass(frozen=True)
class Answer:
    """The fields of an answer that are of use; three have one entry for each token."""

    tokens: list[int]
    logprobs: list[float]
    labels: list[str]
    """The server's names of the weights that sampled each token."""
    reason: str
    """Why sampling ended: `stop`, or `length`."""
    experts: str | None = None
    """The experts of each token that the model read, from the first one that was asked for on, as
    an array of NumPy in base64; None where a server returns none."""


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
    """The body of POST /inference/v1/generate, for at most `most` tokens; `ends` end the text.

    Tokens that are special in the vocabulary are kept in the text that stop strings are looked for
    in, since a scaffold's tags may be such tokens; without stop strings no text is made. A server
    that returns experts unasked is asked for as few as can be.
    """
    first = len(prompt) - 1 if sampling.experts_from is None else sampling.experts_from
    return {
        "model": model,
        "token_ids": [int(token) for token in prompt],
        "sampling_params": {
            "max_tokens": most,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "seed": sampling.seed % 2**63,  # vLLM takes 64 bits with a sign
            "stop": list(sampling.stop),
            "include_stop_str_in_output": True,
            "stop_token_ids": sorted(ends),
            "ignore_eos": False,
            "detokenize": bool(sampling.stop),
            "routed_experts_prompt_start": first,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "logprobs": 0,  # of the sampled token alone
        },
    }


def read_answer(answer: Mapping[str, Any]) -> Answer:
    """Read the answer's only choice.

    Raises AbortedError for a request that the server gave up, InfrastructureError for an answer
    without tokens, with log-probabilities that are not numbers, or that does not say of each token
    which weights sampled it.
    """
    try:
        choice = answer["choices"][0]
        reason = choice["finish_reason"]
        if reason == "abort":
            raise AbortedError("vLLM gave the request up")
        tokens = [int(token) for token in choice["token_ids"]]
        content = choice["logprobs"]["content"]
        logprobs = [float(entry["logprob"]) for entry in content]
        of = [int(entry["token_id"]) for entry in content]
    except (LookupError, TypeError, ValueError):
        raise InfrastructureError("vLLM's answer has no token ids with log-probabilities") from None
    if not tokens or len(tokens) != len(logprobs):
        raise InfrastructureError(
            f"vLLM's answer has {len(tokens)} tokens and {len(logprobs)} log-probabilities"
        )
    if tokens != of:
        raise InfrastructureError("vLLM's answer has log-probabilities of other tokens")
    if not all(NO_NUMBER < value < math.inf for value in logprobs):
        raise InfrastructureError("the model's logits are not numbers: its weights have diverged")
    labels = _labels(choice, len(tokens))
    return Answer(tokens, logprobs, labels, str(reason), choice.get("routed_experts"))


def _experts(encoded: str) -> NDArray[np.int16]:
    try:
        found: NDArray[np.integer] = np.load(BytesIO(base64.b64decode(encoded)))
    except (EOFError, TypeError, ValueError) as error:
        raise InfrastructureError(f"vLLM's routed experts cannot be read: {error}") from None
    return found.astype(np.int16)


def _labels(choice: Mapping[str, Any], count: int) -> list[str]:
    """The label of each token, from spans that follow each other without gaps."""
    labels: list[str] = []
    try:
        for span in choice["weight_versions"]:
            if span["start"] != len(labels):
                break
            labels += [str(span["version"])] * (span["end"] - span["start"])
    except (LookupError, TypeError):
        labels = []
    if len(labels) != count:
        raise InfrastructureError(
            f"vLLM's answer does not say which weights sampled each of its {count} tokens: "
            f"weight_versions is {choice.get('weight_versions')}, which vLLM 0.32 or later fills in"
        )
    return labels


def completion(
    answer: Answer,
    sampling: Sampling,
    matcher: StopMatcher,
    ends: frozenset[int],
    versions: Sequence[int],
    prompt: int,
) -> Completion:
    """The sampled completion after a prompt of so many tokens, cut behind the first token that ends
    the turn, should there be more; `versions` has the version of each token. Where experts were
    asked for, raises ConfigError for a server that does not return those of each token, and
    InfrastructureError for some that cannot be read."""
    whole, start = len(answer.tokens), sampling.experts_from
    found = None if start is None or answer.experts is None else _experts(answer.experts)
    # The model has not read the last token, which has no experts yet.
    if start is not None and (found is None or len(found) != prompt + whole - 1 - start):
        raise ConfigError(
            "rollout.routing_replay needs the experts of each token, and the server of vLLM does "
            "not return them: start it with --enable-return-routed-experts, on a GPU"
        )

    def cut(count: int, reason: StopReason) -> Completion:
        experts = None if found is None else found[: len(found) - whole + count]
        sampled = answer.tokens[:count], answer.logprobs[:count]
        return Completion(*sampled, reason, versions[:count], experts)

    for count, token in enumerate(answer.tokens, 1):
        if matcher.feed(token):
            return cut(count, StopReason.STOP_STRING)
        if token in ends:
            return cut(count, StopReason.END_OF_TEXT)
    if answer.reason == "stop":
        return cut(whole, StopReason.STOP_STRING)
    return cut(whole, StopReason.MAX_TOKENS if whole >= sampling.max_tokens else StopReason.CONTEXT)


def shown(
    prompt: Sequence[int], images: Sequence[Image], reader: ImageReader | None
) -> dict[str, Any]:
    """The fields of a request that show a server a prompt with images; none without images.

    Raises ConfigError for a model that takes none, InfrastructureError for a prompt with a
    placeholder that stands for nothing before an image: the server would put the image there.
    """
    if not images:
        return {}
    if reader is None:
        raise ConfigError("the model takes no images, and is given some")
    templated = reader.templated(prompt, images)
    behind = list(prompt[images[-1].end :]).count(reader.token)
    if templated.count(reader.token) - behind != len(images):
        raise InfrastructureError(
            "the model wrote the placeholder of images itself, and was shown an image after that: "
            "vLLM would take the one for the other"
        )
    return {
        "token_ids": [int(token) for token in templated],
        "content_parts": [{"type": "image_url", "url": _url(image.png)} for image in images],
        "return_token_ids": True,
    }


def check_read(answer: Mapping[str, Any], prompt: Sequence[int], images: Sequence[Image]) -> None:
    """Raise InfrastructureError for an answer that was sampled after another prompt with images."""
    if not images:
        return
    read = answer.get("prompt_token_ids")
    if read is None:
        raise InfrastructureError(
            "vLLM does not say which tokens it read (prompt_token_ids), which vLLM 0.32 or later "
            "does"
        )
    if list(read) != list(prompt):
        raise InfrastructureError(
            f"vLLM read {len(read)} other tokens than the {len(prompt)} of the prompt: its image "
            "processor is not the one that the model was loaded with"
        )


def _url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(plain(png)).decode()


class WrongWeightsError(InfrastructureError):
    """The server sampled with other weights than it was given last."""


class Labels:
    """The labels that servers were given, oldest first.

    Example: `labels.add("000003-version-2", 2)`, then `labels.versions(answer.labels, since, url)`.
    """

    def __init__(self) -> None:
        # A server that outlives a run still has its last label.
        self._run = uuid.uuid4().hex[:8]
        self._places: dict[str, int] = {}
        self._versions: list[int] = []

    def add(self, name: str, version: int) -> str:
        """A new label for weights of a version; `name` is another one each time."""
        label = f"{self._run}-{name}"
        self._places[label] = len(self._versions)
        self._versions.append(version)
        return label

    @property
    def newest(self) -> int:
        """The place of the newest label."""
        return len(self._versions) - 1

    def versions(self, labels: Sequence[str], since: int, url: str) -> list[int]:
        """The version of each token of an answer, which was asked for when the server at `url` had
        the weights at the place `since`.

        Raises WrongWeightsError for weights that it was not given, or older ones than it had.
        """
        places = []
        for label in labels:
            place = self._places.get(label)
            if place is None:
                raise WrongWeightsError(
                    f"vLLM at {url} sampled with the weights {label!r}, which it was not given: it "
                    "was started again, or given others"
                )
            if place < since:
                raise WrongWeightsError(
                    f"vLLM at {url} sampled with weights of version {self._versions[place]} after "
                    f"those of version {self._versions[since]}"
                )
            since = place
            places.append(place)
        return [self._versions[place] for place in places]
