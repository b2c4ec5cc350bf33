"""Trajectories of several contexts: each token is scored and trained in the context in which it was
sampled, and for the weights the trajectory is one."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import (
    changed,
    credited,
    each,
    load_model,
    make_groups,
    members_of,
    put,
    update,
    with_one,
)
from tests.rounding import assert_rounding, bounded
from turnwise.algorithms import make_algorithm
from turnwise.config import CriticConfig, ImplicitRewardConfig, LearningConfig, SftConfig
from turnwise.learning.auxiliary import observed_tokens
from turnwise.learning.batch import loss_mask, policy_examples
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.scoring import sampled_logprobs
from turnwise.learning.sft import SupervisedLearner
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.critic import Critic
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Trajectory, Verdict

pytestmark = pytest.mark.numbers

LEARNING = LearningConfig()


@pytest.fixture
def groups() -> list[Group]:
    """Two groups; each member goes on in two more contexts."""
    generator = np.random.default_rng(5)
    return each(
        make_groups([[1.0, 0.0, 0.3], [0.0, 1.0]]),
        lambda member: changed(member, tokens=_go_on(_go_on(member.tokens, generator), generator)),
    )


def _go_on(tokens: Tokens, generator: np.random.Generator) -> Tokens:
    span = tokens.spans[-1]
    kept = np.concatenate(
        [np.arange(span.start, span.start + 2), np.arange(span.stop - 5, span.stop)]
    )
    tokens = tokens.with_context(kept)
    turn = int(tokens.turn[tokens.mask].max()) + 1
    words = generator.integers(0, 50, 4).tolist()
    tokens = tokens.with_segments(
        [Segment(generator.integers(0, 50, 3).tolist(), Source.TOOL)], turn - 1
    )
    return tokens.with_sampled(words, generator.normal(-3.5, 0.3, 4).tolist(), 0, turn)


def before(member: Trajectory) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Each context by itself: its ids but the last, the places in it after which a token was
    sampled, and these tokens."""
    tokens, found = member.tokens, []
    starts = [int(start) for start, _ in tokens.contexts]
    for start, stop in zip(starts, [*starts[1:], len(tokens)], strict=True):
        places = np.flatnonzero(tokens.mask[start + 1 : stop])
        ids = torch.tensor(tokens.ids[start:stop])
        found.append((ids[None, :-1], torch.from_numpy(places), ids[1:][places]))
    return found


@torch.no_grad()
def by_hand(model: Any, members: Sequence[Trajectory]) -> torch.Tensor:
    """Each sampled token's log-probability, one forward pass for each context."""
    found = []
    for ids, places, tokens in (one for member in members for one in before(member)):
        logprobs = model(ids).logits[0, places].log_softmax(-1)
        found.append(logprobs.gather(1, tokens[:, None])[:, 0])
    return torch.cat(found)


def sampled(rows: Sequence[np.ndarray | None], members: Sequence[Trajectory]) -> torch.Tensor:
    """Of numbers at tokens those that stand at sampled ones; nothing may stand elsewhere."""
    found = []
    for row, member in zip(rows, members, strict=True):
        assert not (np.isfinite(row) & ~member.tokens.mask).any()
        found.append(torch.from_numpy(row[np.isfinite(row)]))
    return torch.cat(found)


def assert_values(critic: Critic, signals: Signals, members: Sequence[Trajectory]) -> None:
    """Assert that values are the critic's after what stands before each sampled token."""

    @torch.no_grad()
    def own(exact: Any) -> list[torch.Tensor]:
        body, head = exact
        asked = [one for member in members for one in before(member)]
        hidden = [body(input_ids=ids).last_hidden_state[0, places] for ids, places, _ in asked]
        return [head(torch.cat(hidden))[:, 0]]

    found = sampled([signals.of(member).values for member in members], members)
    assert_rounding([found], torch.nn.ModuleList([critic.body, critic.head]), own)


@pytest.mark.long
@pytest.mark.parametrize("share_prefixes", [False, True])
def test_an_update_reports_its_log_probabilities_of_each_context(
    groups: list[Group], share_prefixes: bool
) -> None:
    """Of the first pass, whatever the number of passes; a group without a difference in rewards
    trains nothing, and has none."""
    model = load_model("llama")
    members = members_of(groups)
    equal = each(
        groups[1:], lambda member: changed(member, group="equal", verdict=Verdict(1, True))
    )
    algorithm = make_algorithm("grpo", {})
    credits = estimate([*groups, *equal], Signals(), algorithm)
    config = LearningConfig(epochs=2, learning_rate=1e-2, share_prefixes=share_prefixes)
    learner = PolicyLearner(copy.deepcopy(model), None, config, algorithm)
    tokens = learner.update([*groups, *equal], credits).tokens
    logprobs = {name: row["logprob"] for name, row in tokens.items()}
    found = sampled([logprobs[member.id] for member in members], members)
    assert_rounding([found], model, lambda exact: [by_hand(exact, members)])
    assert all(np.isnan(logprobs[member.id]).all() for member in equal[0].trajectories)


def test_scores_are_those_of_each_context(groups: list[Group]) -> None:
    model = load_model()
    members = members_of(groups)
    found = sampled(sampled_logprobs(model, members, LEARNING, 1.0), members)
    assert_rounding([found], model, lambda exact: [by_hand(exact, members)])


@pytest.mark.long
def test_the_split_and_padding_change_no_value(groups: list[Group]) -> None:
    """Contexts of other lengths in one micro-batch, and one that begins with a sampled token."""
    tokens = groups[0].trajectories[0].tokens.with_context(np.arange(0))
    tokens = tokens.with_sampled([3, 4, 5], [-3.0, -3.0, -3.0], 0, 9)
    groups = with_one(groups, 0, 0, tokens=tokens)
    members = members_of(groups)
    for micro in (64, 300, 10_000):
        critic = Critic(load_model(), CriticConfig(), LearningConfig(tokens_per_micro_batch=micro))
        torch.manual_seed(0)
        torch.nn.init.normal_(critic.head.weight)
        batches = [places for places, _ in critic._micro_batches(members)]
        assert sorted(place for batch in batches for place in batch) == [*range(len(members))]
        for batch in batches:
            spans = [span for place in batch for span in members[place].tokens.spans]
            padded = len(spans) * max(span.stop - span.start for span in spans)
            assert padded <= micro or len(batch) == 1
        step = credited(critic, groups)
        assert_values(critic, step[1], members)
    values = step[1].of(members[0]).values
    valued = tokens.mask.copy()
    valued[-3] = False  # nothing stands before it
    np.testing.assert_array_equal(np.isnan(values), ~valued)
    assert critic.update(*step)["critic/loss"] > 0


def test_examples_are_contexts_and_every_sampled_token_is_trained_once(groups: list[Group]) -> None:
    algorithm = make_algorithm("grpo", {"aggregation": "sequence_mean_token_mean"})
    credits = estimate(groups, Signals(), algorithm)
    examples = policy_examples(groups, credits, algorithm, mask_observations=True)
    members = members_of(groups)
    assert len(examples) == 3 * len(members)
    for number, member in enumerate(members):
        own = examples[3 * number : 3 * number + 3]
        sampled = np.concatenate([example.ids[example.trained] for example in own])
        assert sampled.tolist() == member.tokens.ids[member.tokens.mask].tolist()
        advantages = np.concatenate([example.advantage[example.trained] for example in own])
        assert advantages.tolist() == credits.advantages[member.id][member.tokens.mask].tolist()
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


@pytest.mark.long
@pytest.mark.parametrize("algorithm_name", ["grpo", "gspo", "dapo", "reinforce_pp"])
@pytest.mark.parametrize("share_prefixes", [False, True])
def test_the_update_agrees_with_the_engine_across_contexts(
    groups: list[Group], algorithm_name: str, share_prefixes: bool
) -> None:
    """Log-probabilities as an engine gives them are found again: ratios begin at 1."""
    model = load_model()

    def on_policy(member: Trajectory) -> Trajectory:
        logprobs = by_hand(model, [member]).numpy()
        return changed(member, logprob=put(member.tokens.logprob, member.tokens.mask, logprobs))

    groups = each(groups, on_policy)
    members = members_of(groups)
    _, (bound,) = bounded(model, lambda exact: [by_hand(exact, members)])
    algorithm = make_algorithm(algorithm_name, {})
    learning = LearningConfig(share_prefixes=share_prefixes)
    metrics = update(PolicyLearner(model, None, learning, algorithm), groups).metrics
    assert metrics["policy/logprob_gap"] < 2 * bound  # both of them are rounded
    assert metrics["policy/ratio_max"] == pytest.approx(1, abs=2 * bound)
    assert metrics["policy/ratio_min"] == pytest.approx(1, abs=2 * bound)
    assert metrics["policy/approx_kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["policy/clip_fraction"] == 0
    assert metrics["policy/trained_tokens"] == sum(m.tokens.mask.sum() for m in members)


def test_a_demonstration_is_learned_from_with_all_its_contexts(groups: list[Group]) -> None:
    """Two demonstrations a step are six contexts of two, and never a context by itself."""
    demonstrations = [member.tokens for group in groups for member in group.trajectories]
    config = SftConfig(steps=3, batch_size=2)
    learner = SupervisedLearner(load_model(), demonstrations, config, LEARNING, seed=0)
    for step in range(3):
        names = [example.name for example in learner._batch(step)]
        assert len(names) == 6
        assert len(set(names)) == 2


@pytest.mark.wing("algorithms")
def test_process_rewards_stand_in_every_context(groups: list[Group]) -> None:
    from turnwise_algorithms.signals.implicit_reward import ImplicitReward

    policy = load_model()
    reference = load_model("qwen3")

    def scores(members: Sequence[Trajectory]) -> list[np.ndarray]:
        return sampled_logprobs(reference, members, LEARNING, 1.0)

    model = ImplicitReward(policy, scores, ImplicitRewardConfig(learning_rate=1e-2), LEARNING)
    metrics = model.update(groups, model.measure(groups), Credits({}, frozenset()))
    assert metrics["implicit_reward/gradient_norm"] > 0
    signals = model.measure(groups)
    for member in groups[0].graded:
        rewards = signals.of(member).token_rewards
        assert (rewards[member.tokens.mask] != 0).all()
        assert (rewards[~member.tokens.mask] == 0).all()
