"""Log-probabilities, entropies, certainties and score norms of given tokens under a causal model.

The output layer is applied at the asked positions only, in chunks that bound its memory.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from turnwise.errors import NotSupportedError, first_line
from turnwise.forward.equality import FOREIGN_ERRORS, PROBE, is_near, ordinary_tokens
from turnwise.forward.hidden import Images, base_model, hidden_in_a_row, hidden_states, last_hidden
from turnwise.forward.packing import Row, Slicing
from turnwise.forward.routing import Replay
from turnwise.forward.token_scores import kept_at, token_scores, without_left_out
from turnwise.tokens import KeptTokens

LOGITS_PER_CHUNK = 1 << 24
"""float32 logits held at once: 64 MiB, up to four times that with exponentials and gradients."""


def token_logprobs(
    model: nn.Module,
    inputs: Tensor,
    selected: Tensor,
    targets: Tensor,
    temperature: float,
    autocast: bool,
    *,
    images: Images = (),
    slicing: Slicing | None = None,
    replay: Replay | None = None,
    kept: KeptTokens | None = None,
    entropy_gradient: bool = False,
    logits_per_chunk: int = LOGITS_PER_CHUNK,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies, float32[N] each, of N tokens at the sampling temperature.

    Args:
        model: a causal model of transformers, or one wrapped by peft.
        inputs: int64[B, T], padded on the right; no attention mask is needed then.
        selected: bool[B, T], the N positions that predict a target.
        targets: int64[N], in row-major order of the positions.
        temperature: logits are divided by it, as when sampling; above 0.
        autocast: run the body in bfloat16, on a CPU without its attention. The output layer keeps
            the weights' own type, because rounding its logits is what makes trainer and engine
            disagree most.
        images: what placeholders among the inputs stand for.
        slicing: the ranks that compute the inputs together, all given the same; each differentiates
            its slice.
        replay: the experts that the inputs are to be sent to; not for slices.
        kept: of N places, the tokens over which each distribution is; None is the vocabulary.
        entropy_gradient: whether the entropies can be differentiated; costs memory.
        logits_per_chunk: bounds memory; changes nothing else.
    """
    score = partial(
        score_tokens,
        model,
        temperature=temperature,
        entropy_gradient=entropy_gradient,
        logits_per_chunk=logits_per_chunk,
    )
    if slicing is None:
        hidden = hidden_states(model, inputs, selected, autocast, images, replay)
        return score(hidden, targets, kept=kept)
    row = Row.of(inputs, selected, slicing)
    own = kept_at(kept, row.own(torch.arange(len(targets))))
    hidden = hidden_in_a_row(model, row, autocast)
    logprobs, entropies = score(hidden, row.own(targets), kept=own)
    return row.joined(logprobs), row.joined(entropies)


def score_tokens(
    model: nn.Module,
    hidden: Tensor,
    targets: Tensor,
    temperature: float,
    *,
    kept: KeptTokens | None = None,
    entropy_gradient: bool = False,
    logits_per_chunk: int = LOGITS_PER_CHUNK,
) -> tuple[Tensor, Tensor]:
    """The second half of `token_logprobs`: from hidden [N, width] of the predicting positions."""
    layer = OutputLayer.of(model, temperature)
    return _scores(layer, layer.rows(logits_per_chunk), kept, entropy_gradient, hidden, targets)


@dataclass(frozen=True)
class OutputLayer:
    """Hidden states [n, width] to log-probabilities, float32[n, V], of the vocabulary or kept."""

    head: Any
    temperature: float
    cap: float | None
    """Gemma's bound on logits."""
    factor: float
    """The number that the model multiplies its logits by."""

    @classmethod
    def of(cls, model: nn.Module, temperature: float) -> "OutputLayer":
        base = base_model(model)
        head = base.get_output_embeddings()
        return cls(head, temperature, softcapping(base), logit_factor(base))

    @property
    def plain(self) -> bool:
        """Whether the layer is a float32 matrix, with a number as a factor at most."""
        plain = type(self.head) is nn.Linear and self.head.bias is None and self.cap is None
        return plain and self.head.weight.dtype == torch.float32

    @property
    def divisor(self) -> float:
        return self.temperature / self.factor

    def rows(self, logits_per_chunk: int) -> int:
        """How many positions make up so many logits; at least one."""
        return max(1, logits_per_chunk // int(self.head.weight.shape[0]))

    def __call__(self, hidden: Tensor, kept: KeptTokens | None = None) -> Tensor:
        # The model's own order: its factor, then its bound; then the sampler's temperature.
        logits = self.head(hidden.to(self.head.weight.dtype)).float()
        if self.factor != 1:
            logits = logits * self.factor
        logits = bounded(logits, self.cap)
        if self.temperature != 1:
            logits = logits / self.temperature
        return torch.log_softmax(without_left_out(logits, kept), dim=-1)


def in_chunks(
    function: Callable[..., tuple[Tensor, ...]], rows: int, *tensors: Tensor
) -> tuple[Tensor, ...]:
    """Call a function on `rows` rows at a time; a backward pass computes each chunk again."""
    # The logits of one chunk may stay in memory: only of several are they computed again.
    if len(tensors[0]) <= rows:
        return function(*tensors)
    pieces = zip(*(torch.split(tensor, rows) for tensor in tensors), strict=True)
    found = [checkpoint(function, *piece, use_reentrant=False) for piece in pieces]
    return tuple(torch.cat(column) for column in zip(*found, strict=True))


def check_supported(model: nn.Module) -> None:
    """Compare `token_logprobs` with the model's own logits on a few tokens. Raises
    NotSupportedError for a model that is not a body and an output layer of the usual kind, or
    changes its logits in another way: it would silently learn from wrong numbers."""
    base = base_model(model)
    name, tokens = type(base).__name__, ordinary_tokens(base, PROBE)
    inputs = torch.tensor([tokens], device=next(model.parameters()).device)
    selected = torch.ones_like(inputs, dtype=torch.bool)
    try:
        with torch.no_grad():
            # Each token stands for the one after it: any target serves to compare.
            ours, _ = token_logprobs(model, inputs, selected, inputs[0], 1.0, autocast=False)
            logits = model(input_ids=inputs, use_cache=False).logits[0].float()
    except FOREIGN_ERRORS as error:
        raise NotSupportedError(
            f"{name} cannot be trained: it has no body and output layer of the usual kind "
            f"({type(error).__name__}: {first_line(error)})"
        ) from error
    theirs = -functional.cross_entropy(logits, inputs[0], reduction="none")
    if not is_near(ours, theirs, base.dtype):
        far = float((ours - theirs).abs().max())
        raise NotSupportedError(
            f"{name} changes its logits in a way that turnwise.forward.logprobs does not know; "
            f"its log-probabilities would be wrong by {far:.2g} nats"
        )


def _scores(
    layer: OutputLayer,
    rows: int,
    kept: KeptTokens | None,
    entropy_gradient: bool,
    hidden: Tensor,
    targets: Tensor,
) -> tuple[Tensor, Tensor]:
    # The usual layer has a gradient of its own, written out in memory that is used again.
    if layer.plain:
        states, weight = hidden.to(layer.head.weight.dtype), layer.head.weight
        logprobs, entropies = token_scores(states, weight, targets, layer.divisor, rows, kept)
        return logprobs, entropies if entropy_gradient else entropies.detach()
    score = partial(_score, layer, kept, entropy_gradient)
    places = torch.arange(len(targets))  # on the processor: they index records of NumPy's
    logprobs, entropies = in_chunks(score, rows, hidden, targets, places)
    return logprobs, entropies


def _score(
    layer: OutputLayer,
    kept: KeptTokens | None,
    entropy_gradient: bool,
    hidden: Tensor,
    targets: Tensor,
    places: Tensor,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies, float32[n] each; `places` are among what is kept."""
    logprobs = layer(hidden, kept_at(kept, places))
    # An entropy that is only measured must not keep another [n, V] for the backward pass.
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
    return logprobs.gather(1, targets[:, None])[:, 0], entropy


def by_layer(
    function: Callable[..., tuple[Tensor]],
    model: nn.Module,
    inputs: Tensor,
    selected: Tensor,
    targets: Tensor,
    temperature: float,
    autocast: bool,
    *,
    images: Images = (),
    slicing: Slicing | None = None,
    kept: KeptTokens | None = None,
    logits_per_chunk: int = LOGITS_PER_CHUNK,
) -> Tensor:
    """One number for each of N tokens, float32[N], by a function of the output layer, what is kept,
    hidden states, targets and places. Arguments as for `token_logprobs`."""
    layer = OutputLayer.of(model, temperature)
    rows, places = layer.rows(logits_per_chunk), torch.arange(len(targets))
    measured = partial(in_chunks, partial(function, layer, kept), rows)
    if slicing is None:
        hidden = hidden_states(model, inputs, selected, autocast, images)
        return measured(hidden, targets, places)[0]
    row = Row.of(inputs, selected, slicing)
    hidden = hidden_in_a_row(model, row, autocast)
    return row.joined(measured(hidden, row.own(targets), row.own(places))[0])


def _norms(
    layer: OutputLayer, kept: KeptTokens | None, hidden: Tensor, targets: Tensor, places: Tensor
) -> tuple[Tensor]:
    differences = layer(hidden, kept_at(kept, places)).exp()
    ones = torch.ones_like(targets, dtype=differences.dtype)[:, None]
    return (differences.scatter_add(1, targets[:, None], -ones).square().sum(dim=-1),)


def _certainties(
    layer: OutputLayer, kept: KeptTokens | None, hidden: Tensor, targets: Tensor, places: Tensor
) -> tuple[Tensor]:
    del kept, targets, places
    logprobs = layer(hidden)
    return (-logprobs.mean(dim=-1) - math.log(logprobs.shape[-1]),)


def _entropies(
    layer: OutputLayer, kept: KeptTokens | None, hidden: Tensor, targets: Tensor, places: Tensor
) -> tuple[Tensor]:
    kept = kept_at(kept, places)
    # `by_layer` has cut the rows already: these are one chunk.
    return (_scores(layer, max(1, len(targets)), kept, False, hidden, targets)[1].detach(),)


score_norms = partial(by_layer, _norms)
"""1 - 2 pi + sum_v pi_v^2 of N tokens, float32[N], from 0 to 2: the squared norm of log pi's
gradient with respect to the logits over the temperature (OTB, arXiv 2602.07078). Summed as
(pi_v - [v is the token])^2, which no rounding makes negative."""

certainties = partial(by_layer, _certainties)
"""KL(U || pi) = -mean_v log(V pi_v) at N tokens, float32[N], 0 or more, in nats; targets and what
is kept do not count. Source: self-certainty, Kang et al. 2025 (arXiv 2502.18581)."""

entropies = partial(by_layer, _entropies)
"""The second of `token_logprobs` alone, float32[N], in nats, without a gradient."""


_found: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
"""The factor of each model, kept since it takes passes to find."""


def logit_factor(base: Any) -> float:
    """The number by which a model multiplies its logits (Granite's and Cohere's scale, MiniCPM3's);
    1 where its configuration, of a model not wrapped by peft, names none.

    One says by which to multiply, and another by which to divide, under the same name: it is the
    one of these that gives the model's own logits, and does not depend on the weights.
    """
    named = _named(base)
    if named == [1.0]:
        return 1.0
    if base not in _found:
        _found[base] = _nearest(base, named)
    return _found[base]


def softcapping(base: Any) -> float | None:
    """Gemma's bound on logits: cap tanh(logits / cap); None for other models."""
    settings = base.config.get_text_config()
    caps = (
        getattr(settings, name, None) for name in ("final_logit_softcapping", "logits_soft_cap")
    )
    return next((float(cap) for cap in caps if cap is not None), None)


def bounded(logits: Tensor, cap: float | None) -> Tensor:
    return logits if cap is None else cap * torch.tanh(logits / cap)


def _named(base: Any) -> list[float]:
    settings = base.config.get_text_config()
    values = {
        float(value)
        for name, value in settings.to_dict().items()
        if ("logit" in name or "lm_head" in name) and "cap" not in name and _is_positive(value)
    }
    if _is_positive(getattr(settings, "dim_model_base", None)):
        values.add(settings.dim_model_base / settings.hidden_size)
    return sorted({1.0, *values, *(1 / value for value in values)})


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


@torch.inference_mode(False)
@torch.no_grad()
def _nearest(base: Any, named: list[float]) -> float:
    inputs = torch.tensor([ordinary_tokens(base, PROBE)], device=base.device)
    head = base.get_output_embeddings()
    states = last_hidden(base, inputs, autocast=False)[0]
    plain = head(states.to(head.weight.dtype)).float()
    own = base(input_ids=inputs, use_cache=False).logits[0].float()
    cap = softcapping(base)
    distances = [float((bounded(plain * factor, cap) - own).norm()) for factor in named]
    return named[distances.index(min(distances))]
