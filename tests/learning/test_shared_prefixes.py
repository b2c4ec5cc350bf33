"""Updates with shared prefixes: trees compute what the sequences compute by themselves."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.graded import graded
from tests.learning.building import load_model, update
from tests.rounding import assert_rounding, gradients
from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig
from turnwise.errors import ConfigError
from turnwise.forward import prefix_trees
from turnwise.forward.logprobs import token_logprobs
from turnwise.forward.prefix_trees import batch_trees, prefix_tree, tree_logprobs
from turnwise.learning.batch import Example, collate, supervised_examples
from turnwise.learning.optimizer import UpdateStats
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.shared_prefixes import build_prefix_trees, pack_trees
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group

pytestmark = pytest.mark.numbers

CPU = torch.device("cpu")
EVERYTHING = {"kl_coefficient": 0.1, "entropy_coefficient": 0.01}
STORIES = [
    ([4, 5, 6], [7, 8], [9, 10]),
    ([4, 5, 6], [7, 8], [9, 10]),
    ([4, 5, 6], [7, 8], [9, 11, 12]),
    ([4, 5, 2], [7, 3], [9, 10]),
    ([4], [1, 1, 1], [5]),
    ([3, 3], [8], [2, 2, 2, 2]),
]
"""First turn, its result, second turn: of six trajectories of a group."""


def record(prompt: Sequence[int], story: tuple[list[int], list[int], list[int]]) -> Tokens:
    tokens = Tokens.empty().with_segments([Segment(prompt, Source.USER)], 0)
    for turn, words in enumerate(story):
        if turn == 1:
            tokens = tokens.with_segments([Segment(words, Source.TOOL)], 0)
        else:
            tokens = tokens.with_sampled(words, [-3.5 + 0.1 * word for word in words], 0, turn)
    return tokens


def group(name: str, prompt: Sequence[int]) -> Group:
    """Six trajectories that share more or less of their beginnings; rewards 0, 0.3, 0.6, ..."""
    members = (
        graded(True, name, n, reward=0.3 * n, group=name, tokens=record(prompt, story))
        for n, story in enumerate(STORIES)
    )
    return Group(name, tuple(members))


def groups() -> list[Group]:
    return [group("a", [20, 21, 22, 23, 24]), group("b", [30, 31])]


@pytest.mark.long
@pytest.mark.parametrize(("family", "block"), [("qwen3", 5), ("llama", 128)])
def test_logprobs_and_gradients_are_those_of_the_sequences(
    family: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tokens in several sequences the gradient is that of all of them."""
    monkeypatch.setattr(prefix_trees, "BLOCK", block)
    examples = [
        supervised_examples(member.tokens, str(member.episode))[0]
        for one in groups()
        for member in one.trajectories
    ]
    sequences = [(example.ids, example.trained) for example in examples]
    trees = [prefix_tree([ids for ids, _ in part]) for part in (sequences[:6], sequences[6:])]
    batch = collate(examples, CPU)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(2, len(batch.targets), generator=generator)
    results = []
    for shared in (False, True):
        model = load_model(family).eval()
        if shared:
            tree_batch = batch_trees(trees, sequences, CPU)
            assert len(tree_batch.predictors) < len(batch.targets)  # equal ones are scored once
            scores = tree_logprobs(model, tree_batch, 0.7, False, entropy_gradient=True)
        else:
            given = (batch.inputs, batch.selected, batch.targets)
            scores = token_logprobs(model, *given, 0.7, False, entropy_gradient=True)
        (weights * torch.stack(scores)).sum().backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        results.append((*(score.detach() for score in scores), gradient))

    def own(exact: Any) -> list[torch.Tensor]:
        logits = exact(input_ids=batch.inputs).logits[batch.selected] / 0.7
        every = logits.log_softmax(-1)
        logprobs = every.gather(1, batch.targets[:, None])[:, 0]
        scores = [logprobs, -(every.exp() * every).sum(-1)]
        gradient = gradients(exact, (weights * torch.stack(scores)).sum())
        return [*scores, torch.cat([part.flatten() for part in gradient])]

    for found in results:
        assert_rounding(found, load_model(family).eval(), own)


@pytest.mark.long
@pytest.mark.parametrize("overrides", [{}, {"correction": "truncated"}, EVERYTHING])
def test_an_update_is_the_same_with_fewer_tokens(overrides: dict[str, Any]) -> None:
    algorithm = make_algorithm("grpo", overrides)

    def updated(model: Any, shared: bool) -> tuple[torch.Tensor, dict[str, float], int]:
        """The gradient that the weights are moved by, metrics, and tokens of forward passes."""
        seen: list[int] = []
        kept: list[torch.Tensor] = []
        reference = load_model().to(model.dtype) if algorithm.has_reference else None
        config = LearningConfig(learning_rate=1e-3, share_prefixes=shared)
        learner = PolicyLearner(model, reference, config, algorithm)
        hook = model.model.embed_tokens.register_forward_hook(
            lambda module, inputs, output: seen.append(inputs[0].numel())
        )
        apply = learner.optimizer.apply

        def keep() -> UpdateStats:
            kept.extend(parameter.grad.flatten() for parameter in model.parameters())
            return apply()

        learner.optimizer.apply = keep
        played = groups()
        metrics = update(learner, played).metrics
        hook.remove()
        return torch.cat(kept), metrics, sum(seen)

    alone, metrics, count = updated(load_model(), shared=False)
    shared, shared_metrics, shared_count = updated(load_model(), shared=True)
    for found in (alone, shared):
        assert_rounding([found], load_model(), lambda exact: [updated(exact, shared=False)[0]])
    assert shared_metrics == pytest.approx(metrics, rel=1e-3, abs=1e-5)
    assert shared_count < 0.7 * count


def example(name: str, ids: list[int]) -> Example:
    tokens = Tokens.empty().with_segments([Segment(ids[:1], Source.USER)], 0)
    tokens = tokens.with_sampled(ids[1:], [0.0] * (len(ids) - 1), 0, 0)
    return supervised_examples(tokens, name)[0]


def test_only_what_is_less_work_is_shared() -> None:
    """Attention in a block looks at all pairs, so sharing a little of much does not pay."""
    same = [example("same", [1, *range(40)]), example("same", [1, *range(40)])]
    apart = [example("apart", [1, 2, *range(40)]), example("apart", [1, 3, *range(40)])]
    alone = [example("alone", [5, 6, 7])]
    shared, others = build_prefix_trees([*same, *apart, *alone], 16, 1000)
    assert [members for members, _ in shared] == [same]
    assert {one.name for one in others} == {"apart", "alone"}


def test_trees_fit_into_micro_batches() -> None:
    examples = [example("g", [9, 9, 9, 9, 9, first, *range(8)]) for first in (1, 1, 2, 2)]
    whole, _ = build_prefix_trees(examples, 1000, 1000)
    assert [len(tree.ids) for _, tree in whole] == [5 + 2 * 8]
    halves, _ = build_prefix_trees(examples, 1000, 15)
    assert [len(tree.ids) for _, tree in halves] == [13, 13]
    batches = list(pack_trees(halves * 2, 30))
    assert [[len(members) for members, _ in batch] for batch in batches] == [[2, 2], [2, 2]]


def test_a_model_with_another_attention_is_refused() -> None:
    algorithm = make_algorithm("grpo", {})
    with pytest.raises(ConfigError, match="share_prefixes"):
        PolicyLearner(load_model("gemma2"), None, LearningConfig(share_prefixes=True), algorithm)
