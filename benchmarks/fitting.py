"""Which model can be trained on which GPUs: the fewest learners that `turnwise plan` finds.

Prints the table of docs/how-to/scale.md, by formula: nothing is measured, no weights are read.

Not here: the formulas (`turnwise.cluster.planner.memory`), and samplers, which take GPUs of their
own.
"""

from turnwise.cluster.planner.hardware import find_gpu
from turnwise.cluster.planner.memory import GIB, Training, least_learners
from turnwise.cluster.planner.shapes import ModelShape
from turnwise.errors import ConfigError

TOKENS = 16384
"""Tokens of a micro-batch."""
MOST = 64
"""Learners at most."""
GPUS = ("rtx4090", "a100-40gb", "h100", "h200")
MODELS = {
    "0.6B": ModelShape("0.6B", 28, 1024, 3072, 16, 8, 128, 151936, True),
    "4B": ModelShape("4B", 36, 2560, 9728, 32, 8, 128, 151936, True),
    "8B": ModelShape("8B", 36, 4096, 12288, 32, 8, 128, 151936),
    "14B": ModelShape("14B", 40, 5120, 17408, 40, 8, 128, 151936),
    "32B": ModelShape("32B", 64, 5120, 25600, 64, 8, 128, 151936),
    "70B": ModelShape("70B", 80, 8192, 28672, 64, 8, 128, 128256),
}
"""Shapes of Qwen3, and of Llama 3 for the largest."""
SETTINGS = {
    "LoRA": Training(lora_rank=16, recompute=True, micro_batch=TOKENS),
    "all weights": Training(recompute=True, micro_batch=TOKENS),
    "all, offloaded": Training(
        recompute=True, micro_batch=TOKENS, offload_activations=True, offload_optimizer=True
    ),
}


def least(shape: ModelShape, training: Training, gpu: str) -> str:
    """The fewest learners, or a dash where MOST are not enough."""
    try:
        return str(least_learners(shape, training, find_gpu(gpu).memory * GIB, MOST))
    except ConfigError:
        return "–"


def table() -> str:
    """A row for each model and way to train it, a column for each GPU."""
    memory = [f"{gpu} ({find_gpu(gpu).memory:g} GiB)" for gpu in GPUS]
    lines = [f"| model | trained | {' | '.join(memory)} |", "|---|---|" + "---|" * len(GPUS)]
    for model, shape in MODELS.items():
        for name, training in SETTINGS.items():
            cells = " | ".join(least(shape, training, gpu) for gpu in GPUS)
            lines.append(f"| {model} | {name} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
