"""Memory of learners and samplers, in bytes per GPU, by formula.

- Weights, optimizer, gradients: bfloat16 weights (2), masters in float32 (4), AdamW's two moments
  (8), gradients in float32 (4) for each trained weight, as `learning/optimizer.py` keeps them: 18
  bytes, 16 in float32 and on several learners, whose parts are the masters; 2 or 4 for a frozen
  one. FSDP shards all of it over the learners of a replica (ZeRO stage 3, arXiv 1910.02054), and
  gathers two layers at a time. With `offload_optimizer` masters and moments are the processor's.
- Activations of a layer: 34 bytes for each token and unit of width, with attention that keeps no
  matrix (arXiv 2205.05198, equation 2 without its attention term); recomputed, 2 for each layer,
  the processor's with `offload_activations`, and 34 for one. The output layer works in chunks of
  2^24 logits, with float32 copies.
- KV cache: keys and values of each layer, 2 bytes a number.
- Beside it, 2 GiB for CUDA, libraries and communication, and a tenth of the memory as a reserve.

Not here: which GPUs there are (`hardware.py`).
"""

import math
from dataclasses import dataclass

from turnwise.cluster.planner.shapes import ModelShape
from turnwise.errors import ConfigError

GIB = float(1 << 30)
CUDA = 2 * GIB
"""Bytes of CUDA, libraries and communication on each GPU."""
USABLE = 0.9
"""Share of a GPU's memory that is planned with."""
ACTIVATION = 34
"""Bytes of a layer's activations for each token and unit of width."""
LOGITS = (1 << 24) * 4 * 3
"""Bytes of a chunk of logits, their softmax and its gradient, in float32."""
LEAST_SEQUENCES = 4
"""Sequences of the longest length that a sampler has to hold."""


@dataclass(frozen=True)
class Training:
    """How a model is trained, as a recipe says it."""

    bfloat16: bool = True
    """Whether weights are kept in bfloat16 beside masters."""
    lora_rank: int = 0
    recompute: bool = False
    """Whether activations are computed again in the backward pass."""
    offload_activations: bool = False
    """Whether what is kept of recomputed layers is in the processor's memory."""
    offload_optimizer: bool = False
    """Whether moments and masters are in the processor's memory."""
    replicas: int = 1
    """Copies of the divided model among the learners."""
    micro_batch: int = 4096
    """Tokens of one forward pass."""
    reference: bool = False
    """Whether there is a second, frozen model."""
    critic: bool = False
    """Whether there is a second, trained model."""
    passes: int = 1
    """Passes over the tokens of a step."""


@dataclass(frozen=True)
class LearnerMemory:
    """Bytes on each of the learners."""

    weights: float
    """Weights of frozen models too."""
    gradients: float
    optimizer: float
    """Moments and masters."""
    activations: float
    gathered: float
    """Whole layers, for the moment in which they are computed."""
    host: float = 0.0
    """Bytes of the processor's memory for this learner, which are in no sum."""
    other: float = CUDA

    @property
    def total(self) -> float:
        """All of it on the GPU."""
        return float(sum(vars(self).values())) - self.host


@dataclass(frozen=True)
class SamplerMemory:
    """Bytes on each GPU of a sampler, and what it can hold."""

    gpus: int
    """GPUs that share a sampler's weights (tensor parallelism)."""
    weights: float
    cache: float
    """The rest, for keys and values."""
    slots: int
    """Sequences of a mean length that the cache has room for."""
    other: float = CUDA

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.cache + self.other


def learner_memory(shape: ModelShape, training: Training, learners: int) -> LearnerMemory:
    """Bytes on each of so many learners."""
    width = 2 if training.bfloat16 else 4
    parameters = shape.parameters
    trained = shape.adapters(training.lora_rank) if training.lora_rank else parameters
    frozen = parameters if training.lora_rank else 0
    if training.critic:
        trained += parameters
    if training.reference and not training.lora_rank:
        frozen += parameters
    divided_over = max(1, learners // training.replicas)
    # Adapters are on every learner; whole models are sharded.
    shards = 1 if training.lora_rank and not training.critic else divided_over
    rounded = width < 4 and shards == 1 and not training.lora_rank  # adapters are in float32
    masters = 4 if rounded or training.offload_optimizer else 0
    own = width if rounded else 4
    each = ACTIVATION * shape.width * training.micro_batch
    inputs = 2 * shape.width * training.micro_batch * shape.layers
    moved = inputs if training.offload_activations else 0
    kept = each + inputs - moved if training.recompute else each * shape.layers
    offloaded = (8 + masters) * trained / shards if training.offload_optimizer else 0.0
    return LearnerMemory(
        weights=own * trained / shards + width * frozen / divided_over,
        gradients=4 * trained / shards,
        optimizer=(8 + masters) * trained / shards - offloaded,
        activations=kept + LOGITS,
        gathered=0.0 if divided_over == 1 else 2 * width * max(shape.layer, shape.embedding),
        host=offloaded + moved,
    )


def least_learners(shape: ModelShape, training: Training, memory: float, most: int) -> int:
    """The fewest learners on which training fits, GPUs of so many bytes; a power of two up to
    `most`, or `most` itself. Raises ConfigError where it does not fit on those either."""
    for count in _counts(most):
        if learner_memory(shape, training, count).total <= USABLE * memory:
            return count
    raise ConfigError(_too_large(shape, training, memory, most))


def sampler_memory(
    shape: ModelShape, memory: float, context: float, longest: int, most: int
) -> SamplerMemory:
    """The smallest sampler that holds the model and some sequences of the longest length, on GPUs
    of so many bytes, `most` of them at most; `context` is the mean length of a sequence. Raises
    ConfigError where none does."""
    per_token = 2 * shape.cache_per_token
    for gpus in _counts(most):
        weights = 2 * shape.parameters / gpus
        cache = USABLE * memory - CUDA - weights
        if cache * gpus >= LEAST_SEQUENCES * longest * per_token:
            slots = int(cache * gpus / (max(1.0, context) * per_token))
            return SamplerMemory(gpus, weights, cache, slots)
    need = (2 * shape.parameters + LEAST_SEQUENCES * longest * per_token) / (USABLE * memory - CUDA)
    raise ConfigError(
        f"{shape.name} does not fit on {most} GPUs of {memory / GIB:.0f} GiB to sample: its "
        f"weights take {2 * shape.parameters / GIB:.0f} GiB, and {LEAST_SEQUENCES} sequences of "
        f"{longest} tokens {LEAST_SEQUENCES * longest * per_token / GIB:.0f} GiB; give --gpus "
        f"{_power(need)} or more"
    )


def _too_large(shape: ModelShape, training: Training, memory: float, most: int) -> str:
    """Why training does not fit on `most` GPUs, and on how many it would."""
    found = learner_memory(shape, training, most)
    head = (
        f"{shape.name} ({shape.parameters / 1e9:.1f} billion parameters) does not fit on {most} "
        f"GPU{'s' * (most > 1)} of {memory / GIB:.0f} GiB to be trained: {found.total / GIB:.0f} "
        "GiB on each"
    )
    count = 2 * most
    while count <= 1 << 20:
        if learner_memory(shape, training, count).total <= USABLE * memory:
            return f"{head}; give --gpus {_power(count)} or more, or model.lora_rank"
        count *= 2
    cause = "lower learning.tokens_per_micro_batch or set model.gradient_checkpointing=true"
    return f"{head}, and no number of GPUs is enough, since activations are not shared: {cause}"


def _power(number: float) -> int:
    return int(2 ** math.ceil(math.log2(max(1.0, number))))


def _counts(most: int) -> list[int]:
    """The powers of two up to a number, and the number."""
    powers = [1 << n for n in range(most.bit_length())]
    return sorted({count for count in (*powers, most) if count <= most})
