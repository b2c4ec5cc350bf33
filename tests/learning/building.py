"""Tiny random models and groups of random trajectories, other members in them, and what updates
make of weights: records do not change, so a test that wants another one makes it."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.forward.models_for_tests import random_model
from turnwise.algorithms import Algorithm, make_algorithm
from turnwise.config import LearningConfig
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.learner import UpdateReport
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.critic import Critic
from turnwise.tokens import KeptTokens, Segment, Source, Tokens
from turnwise.types import Group, Outcome, Task, Trajectory, Verdict

VOCABULARY = 50
GRPO, PPO = make_algorithm("grpo", {}), make_algorithm("ppo", {})
REWARDS = [[1.0, 0.0, 0.0], [0.5, 1.0], [0.0, 1.0, 0.2]]
"""Three groups that differ."""
ARRAYS = {one.name for one in fields(Tokens)}
FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"tie_word_embeddings": True}),
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM, {"final_logit_softcapping": 1.5}),
}


def load_model(family: str = "qwen3", dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """A tiny model of a family with peaked logits, the same each time."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
    }
    return random_model(FAMILIES[family], seed=1, **sizes, **options).to(dtype)


def word_tokenizer() -> PreTrainedTokenizerFast:
    """One word per token."""
    words = {f"w{index}": index for index in range(VOCABULARY)}
    core = Tokenizer(WordLevel(words, unk_token="w0"))
    core.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="w0")


def make_groups(rewards: Sequence[Sequence[float | None]], seed: int = 0) -> list[Group]:
    """Groups of these rewards, None for ungraded."""
    generator = np.random.default_rng(seed)
    return [
        Group(
            f"g{number}",
            tuple(
                random_trajectory(generator, f"g{number}", episode, reward)
                for episode, reward in enumerate(members)
            ),
        )
        for number, members in enumerate(rewards)
    ]


def random_tokens(generator: np.random.Generator, turns: int = 2) -> Tokens:
    """A prompt, then model tokens and tool output in alternation, of a nearly uniform policy."""
    tokens = Tokens.empty()

    def some(low: int, high: int) -> list[int]:
        return generator.integers(0, VOCABULARY, generator.integers(low, high)).tolist()

    tokens = tokens.with_segments([Segment(some(2, 9), Source.USER)], 0)
    for turn in range(turns):
        words = some(2, 7)
        logprobs = generator.normal(-3.5, 0.3, len(words)).tolist()
        tokens = tokens.with_sampled(words, logprobs, version=0, turn=turn)
        tokens = tokens.with_segments([Segment(some(1, 6), Source.TOOL)], turn)
    return tokens


def worked_example() -> Tokens:
    """P0 P1 A0 A1 T0 X0 A2 E0: a tool's answer with its template, then a correction."""
    tokens = Tokens.empty().with_segments([Segment([10, 11], Source.USER)], 0)
    tokens = tokens.with_sampled([20, 21], [-0.1, -2.0], version=7, turn=0)
    tokens = tokens.with_segments([Segment([30], Source.TOOL), Segment([31], Source.TEMPLATE)], 0)
    tokens = tokens.with_sampled([22], [-0.3], version=8, turn=1)
    return tokens.with_segments([Segment([40], Source.ENVIRONMENT)], 1)


def random_trajectory(
    generator: np.random.Generator, group: str, episode: int, reward: float | None
) -> Trajectory:
    """Graded unless `reward` is None."""
    return Trajectory(
        task=Task(group, "question"),
        group=group,
        episode=episode,
        seed=0,
        tokens=random_tokens(generator, turns=int(generator.integers(1, 4))),
        outcome=Outcome.INFRASTRUCTURE_STEP if reward is None else Outcome.SUCCESS,
        verdict=None if reward is None else Verdict(reward, reward > 0),
    )


def put(array: np.ndarray, where: Any, value: Any) -> np.ndarray:
    """A copy of the array with another value at some places."""
    copied = array.copy()
    copied[where] = value
    return copied


def changed(member: Trajectory, **changes: Any) -> Trajectory:
    """The trajectory with other fields: its own, or arrays of its tokens."""
    arrays = {name: value for name, value in changes.items() if name in ARRAYS}
    own = {name: value for name, value in changes.items() if name not in ARRAYS}
    return replace(member, tokens=replace(own.pop("tokens", member.tokens), **arrays), **own)


def each(groups: Sequence[Group], change: Callable[[Trajectory], Trajectory]) -> list[Group]:
    """The groups with every member changed."""
    return [replace(group, trajectories=tuple(map(change, group.trajectories))) for group in groups]


def with_one(groups: Sequence[Group], group: int, member: int, **changes: Any) -> list[Group]:
    """The groups with one member changed, by its places."""
    chosen = groups[group].trajectories[member].id
    return each(groups, lambda own: changed(own, **changes) if own.id == chosen else own)


def drawn_among_some(member: Trajectory) -> Trajectory:
    """The trajectory with some tokens beside most of those that were sampled."""
    tokens, random = member.tokens, np.random.default_rng(member.episode)
    drawn = tokens.mask & (random.random(len(tokens)) < 0.9)
    rows = [
        np.union1d(random.choice(VOCABULARY, 9), [token]) if among else []
        for token, among in zip(tokens.ids, drawn, strict=True)
    ]
    return changed(member, kept=KeptTokens.of(rows))


def members_of(groups: Sequence[Group]) -> list[Trajectory]:
    """The graded members of all groups, in order."""
    return [member for group in groups for member in group.graded]


def learner(
    algorithm: Algorithm = GRPO, family: str = "qwen3", temperature: float = 1.0, **options: Any
) -> PolicyLearner:
    """A learner of a tiny model, with a reference where the algorithm has one."""
    reference = load_model(family) if algorithm.has_reference else None
    config = LearningConfig(**{"learning_rate": 1e-2, **options})
    return PolicyLearner(load_model(family), reference, config, algorithm, temperature)


def update(
    trained: PolicyLearner, groups: Sequence[Group], *given: Any, **options: Any
) -> UpdateReport:
    """One step on groups of which nothing was measured."""
    credits = estimate(groups, Signals(), trained.algorithm)
    return trained.update(groups, credits, *given, **options)


Step = tuple[list[Group], Signals, Credits]
"""What a critic learns from."""


def credited(critic: Critic, groups: list[Group]) -> Step:
    """A step of PPO with a critic's values."""
    signals = critic.measure(groups)
    return groups, signals, estimate(groups, signals, PPO)


def weights(model: torch.nn.Module) -> torch.Tensor:
    """All weights in one row, float64."""
    return torch.cat([p.detach().double().flatten() for p in model.parameters()])


def descend_plainly(trained: PolicyLearner) -> PolicyLearner:
    """The learner with plain gradient descent, so that a gradient can be read off its weights."""
    parameters = trained.optimizer.parameters
    trained.optimizer._adamw = torch.optim.SGD(parameters, lr=1.0)
    trained.optimizer.learning_rate, trained.optimizer.max_gradient_norm = 1.0, 1e9
    return trained


def change(trained: PolicyLearner, groups: Sequence[Group], *given: Any) -> torch.Tensor:
    """The gradient of one update."""
    before = weights(descend_plainly(trained).model)
    assert update(trained, groups, *given).metrics["policy/updates"] == 1
    return before - weights(trained.model)
