"""Three parts of `gpu.py`: policy updates, and rollouts and updates after one another, of all
weights and of adapters alone."""

from argparse import Namespace
from typing import Any

import numpy as np
import torch
from gpu_engine import GROUP, PROMPT, rollout
from gpu_models import WrongError, random_model, timed, with_adapters
from gpu_shapes import SHAPES

from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig
from turnwise.forward.attention import recompute_layers
from turnwise.forward.hidden import why_not_packed
from turnwise.learning.credits import estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Outcome, Task, Trajectory, Verdict

RANK = 16
MATRIX, PRODUCTS = 8192, 10
"""Width of a matrix product, and how many are timed together: one takes little more than a call."""


def training(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Tokens a second of policy updates, what share that is of a matrix product's rate, and whether
    texts of different lengths would be computed without padding."""
    groups, learner = groups_and_learner(arguments, shape)
    tokens = sum(len(m.tokens) - 1 for group in groups for m in group.trajectories)
    seconds, memory = timed(lambda: updated(learner, groups), arguments)
    rate = product_rate(arguments, 512 if shape == "tiny" else MATRIX)
    model = learner.model
    embedding = 0 if SHAPES[shape][-1] else model.get_input_embeddings().weight.numel()
    work = 6 * (sum(p.numel() for p in model.parameters()) - embedding) * tokens
    return {
        "tokens/s": round(tokens / seconds),
        "TFLOP/s": f"{work / seconds / 1e12:.3g}",
        "product, TFLOP/s": f"{rate / 1e12:.3g}",
        "share": round(work / seconds / rate, 2),
        "padded": why_not_packed(model, learner.config.autocast) or "no",
        **memory,
    }


def product_rate(arguments: Namespace, width: int) -> float:
    """Operations a second of a large square product in bfloat16."""
    matrix = torch.randn(width, width, device=arguments.device, dtype=torch.bfloat16)

    def work() -> None:
        for _ in range(PRODUCTS):
            _ = matrix @ matrix

    return 2 * PRODUCTS * width**3 / timed(work, arguments)[0]


def step(arguments: Namespace, shape: str, rank: int = 0) -> dict[str, Any]:
    """Seconds of a rollout of one turn and of the update after it, on one copy of the weights."""
    groups, learner = groups_and_learner(arguments, shape, rank)
    played, _ = timed(rollout(learner.model, arguments, 1), arguments)
    update, memory = timed(lambda: updated(learner, groups), arguments)
    return {"rollout, s": round(played, 3), "update, s": round(update, 3), **memory}


def lora(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Seconds of a step that trains adapters alone."""
    return {"rank": RANK, **step(arguments, shape, RANK)}


def groups_and_learner(
    arguments: Namespace, shape: str, rank: int = 0
) -> tuple[list[Group], PolicyLearner]:
    """Trajectories as long as an episode without what is observed, and a learner of all weights or
    of adapters of that rank."""
    kind = arguments.type if arguments.pure or rank else "float32"
    model = random_model(shape, kind, arguments.device)
    if rank:
        model = with_adapters(model, rank)
    if arguments.checkpointing:
        recompute_layers(model)
    generator, vocabulary = np.random.default_rng(0), model.config.vocab_size
    groups = []
    for number in range(max(1, arguments.sequences // GROUP)):
        name, members = f"g{number}", []
        for index in range(GROUP):
            tokens = Tokens.empty()
            prompt = generator.integers(3, vocabulary, PROMPT).tolist()
            tokens = tokens.with_segments([Segment(prompt, Source.USER)], turn=0)
            words = generator.integers(3, vocabulary, arguments.new * arguments.turns).tolist()
            tokens = tokens.with_sampled(words, [-7.0] * len(words), 0, turn=0)
            reward, task = float(index % 2), Task(name, "question")
            judged = Outcome.SUCCESS, Verdict(reward, reward > 0)
            members.append(Trajectory(task, name, index, 0, tokens, (), *judged))
        groups.append(Group(name, tuple(members)))
    lower = kind == "float32" and arguments.type == "bfloat16"
    config = LearningConfig(
        compute_dtype="bfloat16" if lower else "auto",
        tokens_per_micro_batch=arguments.micro_batch,
    )
    return groups, PolicyLearner(model, None, config, make_algorithm("grpo", {}))


def updated(learner: PolicyLearner, groups: list[Group]) -> None:
    """One policy update."""
    report = learner.update(groups, estimate(groups, Signals(), learner.algorithm))
    if report.problems:
        raise WrongError(report.problems[0])
