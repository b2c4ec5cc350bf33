"""The model: forward passes over runs of the cache (token ids in, next-token logits out), its
weights.

Not here: requests, sampling, and which session has which run.
"""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.errors import ConfigError, NotSupportedError, unknown_name
from turnwise.forward.cache import PoolCache, Run
from turnwise.forward.kernels.decode import decode_kernels
from turnwise.forward.kernels.tiles import tile_kernels
from turnwise.forward.rounding import sensitivities
from turnwise.forward.small_llama.decode import Decode
from turnwise.forward.small_llama.prefill import FULL, SLIDING, FusedForward
from turnwise.forward.small_llama.tiles import TiledForward
from turnwise.forward.small_llama.weights import is_plain, may_compile
from turnwise.forward.span_attention import attention_in_spans
from turnwise.forward.twin import is_rounding, longest_sum, twin_of

Forward = Callable[
    [torch.Tensor, torch.Tensor, Mapping[str, torch.Tensor], PoolCache], torch.Tensor
]
"""(ids, positions, masks, cache) -> logits after the last input of each row."""
Pass = Callable[[PoolCache, Sequence[Run], np.ndarray, np.ndarray], torch.Tensor]
"""A forward pass on arrays: (cache, runs, ids, positions) -> logits."""
PROBE = 8
"""Tokens on which the two forward passes are compared."""
Written = tuple[FusedForward, Decode | None, TiledForward | None]
"""A model written out, with what is compiled of it."""

logger = logging.getLogger(__name__)


class Runner:
    """The model, and a cache of `tokens` tokens in all, for histories of at most `longest`.

    Where it may be `written` out, a small model of a known shape runs through `FusedForward` and
    `Decode`, if they are seen to give what its twin gives in float64; every other one through its
    own forward. With `autocast` it goes through those in bfloat16, whatever the model's own weights
    are. With `spans` its own attention reads the pool where it is, which not every model can:
    `make_runner.py` finds out. Raises NotSupportedError for a model whose attention is not masked
    here or has no spans, ConfigError for one that is not written out though `autocast` needs it.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokens: int,
        longest: int,
        autocast: bool = False,
        spans: bool = False,
        written: bool = True,
    ) -> None:
        self.model = model
        self._dtype = torch.bfloat16 if autocast else model.dtype
        settings = model.config.get_text_config()
        self._kinds = _attention_kinds(model, settings)
        self._window: int = getattr(settings, "sliding_window", None) or 0
        self._modules = list(model.modules())
        self._layers: int = settings.num_hidden_layers
        self._length = min(PROBE, longest)
        self._fused: FusedForward | None
        self._decode: Decode | None
        self._tiled: TiledForward | None
        self._fused, self._decode, self._tiled = (
            self._equal_fused(longest) if written else (None, None, None)
        )
        if autocast and self._fused is None:
            raise ConfigError(
                f"engine.compute_dtype = bfloat16 computes with copies of the weights, which the "
                f"engine has of small models of the shapes of Llama and Qwen3 alone, not of this "
                f"{type(model).__name__}: set it to auto, or model.dtype to bfloat16"
            )
        if spans:
            _check_spans(model)
        self._own = self._by_spans if spans else self._general
        self.cache = PoolCache(self._layers, tokens, spans)

    @property
    def by_spans(self) -> bool:
        """Whether the model's own attention reads the pool where it is."""
        return self.cache.by_spans

    @property
    def fused(self) -> bool:
        """Whether forward passes are those of `small_llama`."""
        return self._fused is not None

    @property
    def compiled(self) -> bool:
        """Whether a token of each row goes through compiled kernels."""
        return self._decode is not None

    @property
    def tiled(self) -> bool:
        """Whether all layers are computed in one call."""
        return self._tiled is not None

    def refresh(self) -> None:
        """The model's weights have changed."""
        if self._fused is not None:
            self._fused.refresh()
        if self._tiled is not None:
            self._tiled.refresh()

    def forward(self, runs: Sequence[Run], ids: np.ndarray, positions: np.ndarray) -> torch.Tensor:
        """Logits after the last input of each row, float32[n, vocabulary].

        `ids` and `positions` are int64[n, inputs]; inputs are right-aligned, PADDING positions
        on their left. Keys and values of the inputs are kept in the cache.
        """
        return self.forward_on(self.cache, runs, ids, positions)

    def forward_on(
        self, cache: PoolCache, runs: Sequence[Run], ids: np.ndarray, positions: np.ndarray
    ) -> torch.Tensor:
        """Compute as `forward` does, over another cache than its own."""
        if self._fused is None:
            return self._forward(self._own, cache, runs, ids, positions)
        parts = self._fused, self._decode, self._tiled
        return self._written_out(*parts, cache, runs, ids, positions)

    def empty_cache(self, tokens: int) -> PoolCache:
        """Another cache of that many tokens."""
        return PoolCache(self._layers, tokens, self.by_spans)

    def _written_out(
        self,
        fused: FusedForward,
        decode: Decode | None,
        tiled: TiledForward | None,
        cache: PoolCache,
        runs: Sequence[Run],
        ids: np.ndarray,
        positions: np.ndarray,
    ) -> torch.Tensor:
        if tiled is not None and tiled.takes(positions):
            return tiled.forward(runs, ids, positions, cache).float()
        if decode is None or positions.shape[1] > 1:
            return self._forward(fused.forward, cache, runs, ids, positions)
        return decode.forward(runs, ids[:, 0], positions[:, 0], cache).float()

    @torch.inference_mode()
    def _forward(
        self,
        run: Forward,
        cache: PoolCache,
        runs: Sequence[Run],
        ids: np.ndarray,
        positions: np.ndarray,
    ) -> torch.Tensor:
        device = self.model.device
        placement = cache.place(runs, positions, device)
        seen = torch.from_numpy(np.maximum(positions, 0)).to(device)
        inputs = torch.from_numpy(ids).to(device)
        masks = self._masks(seen, placement.length)
        return run(inputs, seen, masks, cache).float()

    def _general(
        self,
        ids: torch.Tensor,
        seen: torch.Tensor,
        masks: Mapping[str, torch.Tensor],
        cache: PoolCache,
        **arguments: Any,
    ) -> torch.Tensor:
        """The model's own forward pass; `arguments` are for its attention."""
        with evaluating(self._modules):
            output = self.model(
                input_ids=ids,
                attention_mask=masks if len(masks) > 1 else masks[self._kinds[0]],
                position_ids=seen,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
                **arguments,
            )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _by_spans(
        self,
        ids: torch.Tensor,
        seen: torch.Tensor,
        masks: Mapping[str, torch.Tensor],
        cache: PoolCache,
    ) -> torch.Tensor:
        """Compute as `_general` does, with attention over spans of the cache."""
        with attention_in_spans(self.model):
            return self._general(ids, seen, masks, cache, pool=cache)

    def _equal_fused(self, longest: int) -> Written | tuple[None, None, None]:
        """The fastest way of writing the model out that does what the model does, if there is one.
        It is looked for with weights of a fixed seed, whatever the model's are now."""
        if not is_plain(self.model):
            return None, None, None
        twin = twin_of(self.model)
        ways = self._written(twin, longest)
        found = [self._probe(partial(self._written_out, *parts)) for parts in ways]
        agrees = self._exactly(twin)
        for place, (logprobs, (_, decode, _)) in enumerate(zip(found, ways, strict=True)):
            if agrees(logprobs):
                return self._written(self.model, longest)[place]
            if decode is not None:
                logger.warning("compiled kernels do not give what the model gives: not used")
        return None, None, None

    def _written(self, model: PreTrainedModel, longest: int) -> list[Written]:
        """The ways in which this machine can write a model out, the fastest first."""
        fused = FusedForward(model, longest, self._dtype)
        found: list[Written] = [(fused, None, None)]
        compiles = model.device.type == "cpu" and may_compile(model)
        kernels = decode_kernels(fused.shape) if compiles else None
        if kernels is None:
            return found
        decode, settings = Decode(fused, kernels, self._window), model.config
        found.insert(0, (fused, decode, None))
        tiles = tile_kernels(fused.shape, settings.hidden_size, settings.intermediate_size)
        if tiles is not None:
            found.insert(0, (fused, decode, TiledForward(model, fused, tiles, self._window)))
        return found

    def _exactly(self, twin: PreTrainedModel) -> Callable[[torch.Tensor], bool]:
        """Whether log-probabilities of the probe are those that a twin has in float64, both for a
        prompt and for a token after it. The twin is in float64 afterwards."""
        exact, ids = twin.double(), torch.from_numpy(self._probe_ids()).to(twin.device)

        def logprobs() -> list[torch.Tensor]:
            with torch.no_grad():
                logits = exact(input_ids=ids, use_cache=False).logits
            return [logits[0, -2:].log_softmax(-1)]

        moved = sensitivities(logprobs, exact.parameters())
        terms = longest_sum(exact)
        return lambda found: is_rounding([found], logprobs(), moved, self._dtype, terms)

    def _probe(self, run: Pass) -> torch.Tensor:
        """Log-probabilities after all tokens but one put in at once, and after that one,
        float32[2, vocabulary]."""
        cache, runs = PoolCache(self._layers, self._length), [Run(0, self._length)]
        places = np.arange(self._length)[None]
        ids = self._probe_ids()
        parts = (slice(0, -1), slice(-1, None))
        logits = [run(cache, runs, ids[:, part], places[:, part]) for part in parts]
        return torch.cat(logits).log_softmax(-1)

    def _probe_ids(self) -> np.ndarray:
        """int64[1, tokens]"""
        vocabulary: int = self.model.get_input_embeddings().num_embeddings
        return np.arange(1, self._length + 1)[None] % vocabulary

    def _masks(self, positions: torch.Tensor, length: int) -> dict[str, torch.Tensor]:
        """Additive masks [n, 1, inputs, length], one for each kind of layer."""
        keys = torch.arange(length, device=positions.device)
        queries = positions[:, None, :, None]
        return {kind: self._mask(kind, queries, keys) for kind in self._kinds}

    def _mask(self, kind: str, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        hidden = keys > queries
        if kind == SLIDING:
            hidden |= keys <= queries - self._window
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=keys.device)
        return mask.masked_fill_(hidden, torch.finfo(self._dtype).min)


def match_weights(
    model: PreTrainedModel, weights: Mapping[str, Any]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of the model's own tensor and its new values.

    Raises ConfigError for a name that the model's state dict lacks and for a wrong shape.
    """
    known = model.state_dict(keep_vars=True)
    changes = []
    for name, values in weights.items():
        if name not in known:
            raise unknown_name("weight", name, known)
        source = torch.as_tensor(values)
        if source.shape != known[name].shape:
            shapes = f"{list(source.shape)}, the model's is {list(known[name].shape)}"
            raise ConfigError(f"weight {name!r} has shape {shapes}")
        changes.append((known[name], source))
    return changes


def end_tokens(model: PreTrainedModel, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a text: those of the model's generation config and of the tokenizer."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    several = configured if isinstance(configured, list) else [configured]
    return frozenset(end for end in (*several, tokenizer.eos_token_id) if end is not None)


def _check_spans(model: PreTrainedModel) -> None:
    """Refuse models without PyTorch's attention, or that pass no arguments on to it, such as the
    pool."""
    name, parameters = type(model).__name__, inspect.signature(model.forward).parameters.values()
    if model.config._attn_implementation != "sdpa":
        raise NotSupportedError(f"{name} has no PyTorch attention")
    if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
        raise NotSupportedError(f"{name} passes nothing on to its attention")


def _attention_kinds(model: PreTrainedModel, settings: Any) -> tuple[str, ...]:
    name = type(model).__name__
    implementation = model.config._attn_implementation
    if implementation not in ("sdpa", "eager"):
        raise ConfigError(
            f"the embedded engine cannot run {name} with {implementation!r} attention: "
            "load it with attn_implementation='sdpa' or 'eager'"
        )
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise NotSupportedError(f"{name} takes no position_ids")
    types = getattr(settings, "layer_types", None)
    if types is None:
        types = [FULL if getattr(settings, "sliding_window", None) is None else SLIDING]
    unknown = sorted(set(types) - {FULL, SLIDING})
    if unknown:
        raise NotSupportedError(f"{name} has {unknown[0]} layers, which are not masked here")
    return tuple(sorted(set(types)))


@contextmanager
def evaluating(modules: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Evaluation mode inside, each module's own mode back outside."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
