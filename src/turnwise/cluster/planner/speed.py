"""Seconds of sampling and learning on GPUs, by the roofline of their data sheets.

- A decode iteration reads the weights and the KV cache of each sequence once, or multiplies 2
  operations for each active weight and token, whichever takes longer (the roofline model); what the
  sequences read (prompts, observations) is multiplied in between, as chunked prefill does.
- An update takes 6 operations for each active weight and token, 8 where activations are computed
  again (arXiv 2001.08361, 2205.05198), 6 more a layer for attention over the tokens before, and 2
  for a reference; for adapters 4 and 6, since frozen weights need no gradient of their own.
- New weights go over the network once to every sampler, adapters alone where only they are trained.

Shares of the peaks that programs reach are stated in `Efficiency`, to be replaced by what was
measured. Not here: memory (`memory.py`), and paces measured in a run (`measured.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from turnwise.cluster.planner.hardware import Gpu
from turnwise.cluster.planner.memory import Training
from turnwise.cluster.planner.shapes import ModelShape
from turnwise.cluster.planner.workload import Workload


@dataclass(frozen=True)
class Efficiency:
    """Shares of the peaks that are reached, and fixed costs in seconds."""

    training: float = 0.35
    """Share of arithmetic, in updates (MFU)."""
    prefill: float = 0.5
    """Share of arithmetic, in prompts and observations."""
    bandwidth: float = 0.6
    """Share of memory bandwidth, in decoding."""
    network: float = 0.5
    """Share of the network, in new weights."""
    iteration: float = 0.004
    """Seconds of a decode iteration beside reading and multiplying: the scheduler, sampling."""
    step: float = 2.0
    """Seconds of an update beside multiplying: the optimizer, checkpoints, records."""
    update: float = 1.0
    """Seconds of new weights beside the network: pausing, checking, going on."""
    driver: float = 0.00033
    """Seconds of the driver's work for a turn that a worker plays: half of what an episode of two
    turns took of the run's process (docs/log/performance.md, 8 workers)."""
    store: float = 1.0
    """GB/s of the object store at the driver."""
    parallel: float = 0.9
    """Share that is left of a sampler's speed with each doubling of its GPUs."""


BYTES_PER_TOKEN = 40
"""Bytes of a token and its provenance on their way to the driver."""


def iteration_seconds(
    shape: ModelShape, gpu: Gpu, gpus: int, workload: Workload, efficiency: Efficiency
) -> Callable[[float], float]:
    """Sequences on a sampler of so many GPUs -> seconds in which each gets one more token."""
    scale: float = gpus * efficiency.parallel ** (gpus.bit_length() - 1)
    bandwidth = gpu.bandwidth * 1e12 * efficiency.bandwidth * scale
    arithmetic = gpu.bfloat16 * 1e12 * efficiency.prefill * scale
    read = 2 * (shape.active + shape.embedding)
    idle = 2 * (shape.parameters - shape.active - shape.embedding)
    cache = 2 * shape.cache_per_token * workload.context
    operations = 2 * shape.active
    prompts = workload.read / max(workload.sampled, 1.0) * operations / arithmetic

    def seconds(sequences: float) -> float:
        sequences = max(1.0, sequences)
        # Of a mixture of experts, each token reaches a few: many tokens reach all.
        reached = 1 - (1 - shape.active_experts / shape.experts) ** sequences
        reading = (read + max(0, idle) * reached + sequences * cache) / bandwidth
        return float(
            efficiency.iteration
            + max(reading, sequences * operations / arithmetic)
            + sequences * prompts
        )

    return seconds


def update_seconds(
    shape: ModelShape,
    gpu: Gpu,
    learners: int,
    workload: Workload,
    training: Training,
    efficiency: Efficiency,
) -> float:
    """Seconds of learning from one step, on so many learners."""
    tokens = workload.episodes * workload.tokens
    per_weight = (4 if training.lora_rank else 6) + (2 if training.recompute else 0)
    attention = 6 * shape.layers * shape.heads * shape.head_width * workload.context * 2
    operations = per_weight * shape.active + attention
    if training.critic:
        operations *= 2
    operations *= training.passes
    if training.reference:
        operations += 2 * shape.active
    rate = gpu.bfloat16 * 1e12 * efficiency.training * learners
    return efficiency.step + tokens * operations / rate


def weights_seconds(
    shape: ModelShape, gpu: Gpu, training: Training, colocated: bool, efficiency: Efficiency
) -> float:
    """Seconds of new weights: a broadcast, whose time does not grow with the samplers; within the
    memory of a GPU where learner and sampler share it."""
    moved = shape.adapters(training.lora_rank) if training.lora_rank else shape.parameters
    rate = gpu.bandwidth * 1e12 if colocated else gpu.network * 1e9
    return efficiency.update + 2 * moved / (rate * efficiency.network)


def store_seconds(workload: Workload, efficiency: Efficiency) -> float:
    """Seconds of the object store for one episode."""
    return workload.tokens * BYTES_PER_TOKEN / (efficiency.store * 1e9)
