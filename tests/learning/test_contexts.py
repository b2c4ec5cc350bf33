"""Trajectories of several contexts: each token is scored and trained in the context in which it was
sampled, and for the weights the trajectory is one."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from turnwise.algorithms import make_algorithm
from turnwise.config import CriticConfig, ImplicitRewardConfig, LearningConfig, SftConfig
from turnwise.learning.auxiliary import observed_tokens
from turnwise.learning.batch import assign_advantages, loss_mask, policy_examples
from turnwise.learning.critic import Critic
from turnwise.learning.implicit_reward import ImplicitReward
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.scoring import sampled_logprobs
from turnwise.learning.sft import SupervisedLearner
from turnwise.types import Group, Segment, Source, Trajectory

LoadModel = Callable[..., Any]
MakeGroups = Callable[..., list[Group]]
LEARNING = LearningConfig()


@pytest.fixture
def groups(make_groups: MakeGroups) -> list[Group]:
    """Two groups; each member goes on in two more contexts."""
    made = make_groups([[1.0, 0.0, 0.3], [0.0, 1.0]])
    generator = np.random.default_rng(5)
    for group in made:
        for member in group.trajectories:
            _go_on(member, generator)
            _go_on(member, generator)
    return made


def _go_on(member: Trajectory, generator: np.random.Generator) -> None:
    tokens = member.tokens
    span = tokens.spans[-1]
    kept = np.concatenate(
        [np.arange(span.start, span.start + 2), np.arange(span.stop - 5, span.stop)]
    )
    tokens.begin_context(kept)
    turn = int(tokens.turn[tokens.mask].max()) + 1
    words = generator.integers(0, 50, 4).tolist()
    tokens.extend_segments([Segment(generator.integers(0, 50, 3).tolist(), Source.TOOL)], turn - 1)
    tokens.extend_sampled(words, generator.normal(-3.5, 0.3, 4).tolist(), 0, turn)


def by_hand(model: Any, member: Trajectory) -> np.ndarray:
    """float32[n]: each sampled token's log-probability after what stands before it in its context,
    one forward pass for each token."""
    tokens = member.tokens
    found = np.full(len(tokens), np.nan, np.float32)
    for place in np.flatnonzero(tokens.mask):
        start = max(int(start) for start, _ in tokens.contexts if start <= place)
        with torch.no_grad():
            logits = model(torch.from_numpy(tokens.ids[None, start:place])).logits[0, -1]
        found[place] = logits.log_softmax(-1)[tokens.ids[place]].item()
    return found


def test_scores_are_those_of_each_context(load_model: LoadModel, groups: list[Group]) -> None:
    model = load_model()
    members = [member for group in groups for member in group.trajectories]
    for member, own in zip(members, sampled_logprobs(model, members, LEARNING, 1.0), strict=True):
        np.testing.assert_allclose(own, by_hand(model, member), atol=1e-5)


def test_values_are_those_of_each_context(load_model: LoadModel, groups: list[Group]) -> None:
    critic = Critic(load_model(), CriticConfig(), LEARNING)
    torch.nn.init.normal_(critic.head.weight)
    critic.assess(groups)
    member = groups[0].trajectories[0]
    assert member.values is not None
    np.testing.assert_array_equal(np.isnan(member.values), ~member.tokens.mask)
    place = int(np.flatnonzero(member.tokens.mask)[-1])
    start = int(member.tokens.contexts[-1, 0])
    ids = torch.from_numpy(member.tokens.ids[None, start:place])
    value = critic.head(critic.body(input_ids=ids).last_hidden_state[0, -1]).item()
    assert member.values[place] == pytest.approx(value, abs=1e-5)
    assign_advantages(groups, make_algorithm("ppo", {}))
    assert critic.update(groups)["critic/loss"] > 0


def test_the_split_and_padding_change_no_value(load_model: LoadModel, groups: list[Group]) -> None:
    """Contexts of other lengths in one micro-batch, and one that begins with a sampled token."""
    member = groups[0].trajectories[0]
    member.tokens.begin_context(np.arange(0))
    member.tokens.extend_sampled([3, 4, 5], [-3.0, -3.0, -3.0], 0, 9)
    members = [member for group in groups for member in group.trajectories]
    found = []
    for micro in (64, 300, 10_000):
        critic = Critic(load_model(), CriticConfig(), LearningConfig(tokens_per_micro_batch=micro))
        torch.manual_seed(0)
        torch.nn.init.normal_(critic.head.weight)
        batches = list(critic._micro_batches(members))
        assert sorted(id(one) for batch in batches for one in batch) == sorted(map(id, members))
        for batch in batches:
            spans = [span for one in batch for span in one.tokens.spans]
            padded = len(spans) * max(span.stop - span.start for span in spans)
            assert padded <= micro or len(batch) == 1
        critic.assess(groups)
        found.append(np.concatenate([one.values for one in members if one.values is not None]))
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)
    np.testing.assert_allclose(found[2], found[0], atol=1e-5)
    assert member.values is not None
    sampled = member.tokens.mask.copy()
    sampled[-3] = False  # nothing stands before it
    np.testing.assert_array_equal(np.isnan(member.values), ~sampled)


def test_examples_are_contexts_and_every_sampled_token_is_trained_once(groups: list[Group]) -> None:
    algorithm = make_algorithm("grpo", {"aggregation": "sequence_mean_token_mean"})
    assign_advantages(groups, algorithm)
    examples = policy_examples(groups, algorithm, mask_observations=True)
    members = [member for group in groups for member in group.trajectories]
    assert len(examples) == 3 * len(members)
    for number, member in enumerate(members):
        own = examples[3 * number : 3 * number + 3]
        sampled = np.concatenate([example.ids[example.trained] for example in own])
        assert sampled.tolist() == member.tokens.ids[member.tokens.mask].tolist()
        advantages = np.concatenate([example.advantage[example.trained] for example in own])
        assert member.advantage is not None
        assert advantages.tolist() == member.advantage[member.tokens.mask].tolist()
        (weight,) = {example.weight for example in own}
        assert weight == pytest.approx(1 / (len(members) * len(sampled))), "one trajectory"
    assert sum(e.weight * e.trained.sum() for e in examples) == pytest.approx(1)


def test_copies_of_observations_are_trained_nowhere(groups: list[Group]) -> None:
    """Where observations are trained at all, it is once."""
    tokens = groups[0].trajectories[0].tokens
    observed = np.isin(tokens.source, (Source.TOOL,))
    assert (tokens.copied & observed).any()
    assert not (observed_tokens(tokens) & tokens.copied).any()
    assert not (loss_mask(tokens, mask_observations=False) & tokens.copied).any()


@pytest.mark.parametrize("algorithm_name", ["grpo", "gspo", "dapo", "reinforce_pp"])
@pytest.mark.parametrize("share_prefixes", [False, True])
def test_the_update_agrees_with_the_engine_across_contexts(
    load_model: LoadModel, groups: list[Group], algorithm_name: str, share_prefixes: bool
) -> None:
    """Log-probabilities as an engine gives them are found again: ratios begin at 1."""
    model = load_model()
    for group in groups:
        for member in group.trajectories:
            member.tokens.logprob = by_hand(model, member)
    algorithm = make_algorithm(algorithm_name, {})
    learning = LearningConfig(share_prefixes=share_prefixes)
    reference = copy.deepcopy(model) if algorithm.has_reference else None
    learner = PolicyLearner(model, reference, learning, algorithm)
    learner.assess(groups)
    assign_advantages(groups, algorithm)
    metrics = learner.update(groups).metrics
    assert metrics["policy/logprob_gap"] < 1e-5
    assert metrics["policy/ratio_max"] == pytest.approx(1, abs=1e-5)
    assert metrics["policy/gradient_norm"] > 0
    trained = sum(m.tokens.mask.sum() for group in groups for m in group.graded)
    assert metrics["policy/trained_tokens"] == trained


def test_a_demonstration_is_learned_from_with_all_its_contexts(
    load_model: LoadModel, groups: list[Group]
) -> None:
    """Two demonstrations a step are six contexts of two, and never a context by itself."""
    demonstrations = [member.tokens for group in groups for member in group.trajectories]
    config = SftConfig(steps=3, batch_size=2)
    learner = SupervisedLearner(load_model(), demonstrations, config, LEARNING, seed=0)
    for step in range(3):
        names = [example.name for example in learner._batch(step)]
        assert len(names) == 6
        assert len(set(names)) == 2


def test_process_rewards_stand_in_every_context(load_model: LoadModel, groups: list[Group]) -> None:
    policy = load_model()
    reference = load_model("qwen3")

    def scores(members: Sequence[Trajectory]) -> list[np.ndarray]:
        return sampled_logprobs(reference, members, LEARNING, 1.0)

    model = ImplicitReward(policy, scores, ImplicitRewardConfig(learning_rate=1e-2), LEARNING)
    model.assess(groups)
    assert model.update(groups)["implicit_reward/gradient_norm"] > 0
    model.assess(groups)
    for member in groups[0].graded:
        assert member.token_rewards is not None
        assert (member.token_rewards[member.tokens.mask] != 0).all()
        assert (member.token_rewards[~member.tokens.mask] == 0).all()
