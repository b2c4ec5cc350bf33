"""Sizes of a model, from its config alone: no weights are read.

Not here: the memory that it takes (`memory.py`), and the time (`speed.py`).
"""

from dataclasses import dataclass
from typing import Any

from turnwise.errors import ConfigError
from turnwise.models.shipped import tiny_folder

LINEAR = 3
"""Matrices of a gated feed-forward layer."""


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a decoder-only model."""

    name: str
    layers: int
    width: int
    """Width of the residual stream."""
    inner: int
    """Width of a feed-forward layer, or of one expert."""
    heads: int
    key_value_heads: int
    head_width: int
    vocabulary: int
    tied: bool = False
    """Whether input and output share their embedding."""
    experts: int = 1
    active_experts: int = 1

    @property
    def attention(self) -> int:
        """Parameters of one layer's attention."""
        return 2 * self.width * self.head_width * (self.heads + self.key_value_heads)

    @property
    def expert(self) -> int:
        """Parameters of one feed-forward layer, or of one expert."""
        return LINEAR * self.width * self.inner

    @property
    def layer(self) -> int:
        """Parameters of a layer, all experts included."""
        router = self.width * self.experts if self.experts > 1 else 0
        return self.attention + self.experts * self.expert + router + 2 * self.width

    @property
    def embedding(self) -> int:
        """Parameters of one embedding."""
        return self.vocabulary * self.width

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.layers * self.layer + (1 if self.tied else 2) * self.embedding + self.width

    @property
    def active(self) -> int:
        """Parameters that a token is multiplied with: the active experts', and the output's."""
        idle = self.layers * (self.experts - self.active_experts) * self.expert
        return self.layers * self.layer - idle + self.embedding

    @property
    def cache_per_token(self) -> int:
        """Numbers in the KV cache for each token."""
        return 2 * self.layers * self.key_value_heads * self.head_width

    def adapters(self, rank: int) -> int:
        """Parameters of LoRA adapters of a rank on every matrix of attention and feed-forward
        layers."""
        own = self.head_width * (self.heads + self.key_value_heads)
        attention = 2 * (2 * self.width + own)
        linear = self.experts * LINEAR * (self.width + self.inner)
        return self.layers * rank * (attention + linear)


def read_shape(name: str) -> ModelShape:
    """The shape of a model that is shipped, in a folder, or on a hub. Raises ConfigError for one
    whose config cannot be read or has other names for these numbers."""
    from transformers import AutoConfig

    place = str(tiny_folder(name)) if name.startswith("tiny") else name
    try:
        config: Any = AutoConfig.from_pretrained(place)
    except (OSError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise ConfigError(
            f"model.name: the config of {name} cannot be read ({first}); give a folder that has it"
        ) from error
    config = getattr(config, "text_config", config)
    try:
        return shape_of(name, config)
    except AttributeError as error:
        raise ConfigError(
            f"model.name: a plan needs the numbers of a decoder of ordinary layers, and the config "
            f"of {name} has none of that name: {error}"
        ) from error


def shape_of(name: str, config: Any) -> ModelShape:
    """The shape that a config of transformers describes. Raises AttributeError for one that lacks
    a number."""
    heads = config.num_attention_heads
    experts = _first(config, ("num_experts", "num_local_experts", "n_routed_experts")) or 1
    inner = config.intermediate_size
    if experts > 1:
        inner = _first(config, ("moe_intermediate_size",)) or inner
    return ModelShape(
        name=name,
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        inner=inner,
        heads=heads,
        key_value_heads=_first(config, ("num_key_value_heads",)) or heads,
        head_width=_first(config, ("head_dim",)) or config.hidden_size // heads,
        vocabulary=config.vocab_size,
        tied=bool(config.tie_word_embeddings),
        experts=experts,
        active_experts=(_first(config, ("num_experts_per_tok",)) or 1) if experts > 1 else 1,
    )


def _first(config: Any, names: tuple[str, ...]) -> int | None:
    return next((getattr(config, n) for n in names if getattr(config, n, None)), None)
