"""Weights in bfloat16: they move as those in float32 do, and resume exactly, for every learner."""

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.fakes import save_small_model
from tests.learning.building import GRPO, REWARDS, credited, load_model, make_groups, update
from turnwise.config import (
    CriticConfig,
    ImplicitRewardConfig,
    LearningConfig,
    ModelConfig,
    SftConfig,
)
from turnwise.errors import ConfigError
from turnwise.learning.credits import Credits
from turnwise.learning.optimizer import Optimizer
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.sft import SupervisedLearner
from turnwise.learning.signals.critic import Critic
from turnwise.models.load import load_model as load_from_recipe
from turnwise.types import Group

pytestmark = pytest.mark.numbers

RATE, UPDATES = 1e-6, 20


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])


def lower() -> Any:
    """A model in bfloat16."""
    return load_model(dtype=torch.bfloat16)


def stepped(learner: PolicyLearner, groups: list[Group]) -> dict[str, float]:
    return update(learner, groups).metrics


@pytest.mark.long
def test_at_the_learning_rate_of_rl_bfloat16_moves_as_float32_does() -> None:
    """Of one model, of numbers that bfloat16 has; the engine samples with the model's weights."""
    config = LearningConfig(learning_rate=RATE)
    exact = PolicyLearner(lower().float(), None, config, GRPO)
    rough = PolicyLearner(lower(), None, config, GRPO)
    start = flat(rough.optimizer.parameters)
    assert torch.equal(start, flat(exact.optimizer.parameters))
    for seed in range(UPDATES):
        for learner in (exact, rough):
            metrics = stepped(learner, make_groups(REWARDS, seed=seed))
            assert metrics["policy/updates"] == 1
    wanted = flat(exact.optimizer.parameters) - start
    found = flat(rough.optimizer._masters) - start
    moved = [float((part != 0).double().mean()) for part in (wanted, found)]
    assert moved[0] > 0.95
    assert moved[1] == pytest.approx(moved[0], abs=0.01)
    assert found.norm().item() == pytest.approx(wanted.norm().item(), rel=0.1)
    assert torch.nn.functional.cosine_similarity(found, wanted, 0) > 0.9
    shown = flat(rough.model.parameters())
    assert torch.equal(shown, flat(m.bfloat16() for m in rough.optimizer._masters))
    expected = flat(p.bfloat16() for p in exact.optimizer.parameters)
    visible = [int((part != start).sum()) for part in (expected, shown)]
    assert visible[1] == pytest.approx(visible[0], rel=0.1)
    assert visible[1] > 0


def test_gradients_of_micro_batches_are_summed_in_float32() -> None:
    """Many small ones after a large one would be lost in bfloat16."""
    model = torch.nn.Linear(4, 1, bias=False, dtype=torch.bfloat16)
    Optimizer(model, 1e-3, LearningConfig(betas=(0.9, 0.99)))
    for size in [1.0] + [1 / 512] * 512:
        torch.autograd.backward(size * model.weight.sum())
    torch.testing.assert_close(model.weight.grad, torch.full((1, 4), 2.0))


def policy_learner() -> Any:
    learner = PolicyLearner(lower(), None, LearningConfig(learning_rate=RATE), GRPO)
    return learner, lambda seed: stepped(learner, make_groups(REWARDS, seed=seed)), learner.model


def supervised_learner() -> Any:
    tokens = [m.tokens for group in make_groups(REWARDS) for m in group.trajectories]
    config = SftConfig(steps=9, batch_size=3, learning_rate=RATE, warmup_steps=2)
    learner = SupervisedLearner(lower(), tokens, config, LearningConfig(), 3)
    return learner, lambda _: learner.step(), learner.model


def critic() -> Any:
    made = Critic(lower(), CriticConfig(learning_rate=RATE), LearningConfig())
    torch.nn.init.ones_(made.head.weight)

    return made, lambda seed: made.update(*credited(made, make_groups(REWARDS, seed))), made


def implicit_reward() -> Any:
    from turnwise_algorithms.signals.implicit_reward import ImplicitReward

    def reference(members: Any) -> list[np.ndarray]:
        return [np.where(m.tokens.mask, m.tokens.logprob.astype(np.float64), 0.0) for m in members]

    config = ImplicitRewardConfig(learning_rate=RATE)
    made = ImplicitReward(lower(), reference, config, LearningConfig())

    def step(seed: int) -> dict[str, float]:
        groups = make_groups(REWARDS, seed=seed)
        return made.update(groups, made.measure(groups), Credits({}, frozenset()))

    return made, step, made.model


LEARNERS = {
    "policy": policy_learner,
    "sft": supervised_learner,
    "critic": critic,
    "implicit_reward": implicit_reward,
}
LONG, WING = pytest.mark.long, pytest.mark.wing("algorithms")
NAMES = [
    *(pytest.param(name, marks=LONG) for name in ("policy", "sft")),
    "critic",
    pytest.param("implicit_reward", marks=[LONG, WING]),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_learner_has_masters_and_resumes_exactly_through_a_file(name: str) -> None:
    assert_resumes_exactly(name, LEARNERS[name])


def assert_resumes_exactly(name: str, make: Callable[[], Any]) -> None:
    """Model and state are saved after two updates; what is between two numbers of bfloat16 too."""
    whole, step, model = make()
    for seed in range(2):
        metrics = step(seed)
        assert metrics[f"{name}/weights_changed"] > 0.5
        assert metrics[f"{name}/weights_changed_rounded"] < 0.1
    kept = io.BytesIO()
    torch.save((model.state_dict(), whole.state()), kept)
    resumed, step_again, model_again = make()
    kept.seek(0)
    weights, state = torch.load(kept, weights_only=True)
    model_again.load_state_dict(weights)
    resumed.load_state(state)
    for seed in range(2, 5):
        step(seed), step_again(seed)
    masters = [flat(learner.optimizer._masters) for learner in (whole, resumed)]
    assert not torch.equal(masters[0], masters[0].bfloat16().double())
    assert torch.equal(*masters)
    assert torch.equal(flat(model.parameters()), flat(model_again.parameters()))
    shown = flat(master.to(p.dtype) for p, master in pairs(whole.optimizer))
    assert torch.equal(shown, flat(whole.optimizer.parameters))


def pairs(optimizer: Optimizer) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(optimizer.parameters, optimizer._masters, strict=True))


def test_weights_in_float32_are_their_own_masters() -> None:
    learner = PolicyLearner(load_model(), None, LearningConfig(), GRPO)
    assert all(master is parameter for parameter, master in pairs(learner.optimizer))
    assert learner.state()["masters"] == {}


def test_adapters_of_a_model_in_bfloat16_are_float32(tmp_path: Path) -> None:
    """New ones, and those of a checkpoint."""
    folder = str(save_small_model(tmp_path / "model"))
    config = ModelConfig(name=folder, dtype="bfloat16", lora_rank=2, device="cpu")
    made, _ = load_from_recipe(config)
    made.save_pretrained(tmp_path / "checkpoint")
    for model in (made, load_from_recipe(config, tmp_path / "checkpoint")[0]):
        adapters = [p for p in model.parameters() if p.requires_grad]
        frozen = [p for p in model.parameters() if not p.requires_grad]
        assert {p.dtype for p in adapters} == {torch.float32}
        assert {p.dtype for p in frozen} == {torch.bfloat16}


def test_the_share_of_changed_weights_is_what_an_update_changed() -> None:
    """Half of the weights have a gradient, of a tensor larger than what is looked at, by columns
    and by rows."""
    for shape, part in (((512, 64), (slice(None), slice(32))), ((512, 64), (slice(256),))):
        model = torch.nn.Linear(shape[1], shape[0], bias=False)
        optimizer = Optimizer(model, 1e-3, LearningConfig(betas=(0.9, 0.99)))
        torch.autograd.backward(model.weight[part].sum())
        moved = optimizer.apply()
        assert moved.weights_changed == pytest.approx(0.5, abs=0.02)
        torch.autograd.backward(torch.nan * model.weight.sum())
        assert optimizer.apply().weights_changed == 0


def test_a_model_with_nothing_to_train_is_refused() -> None:
    frozen = load_model().requires_grad_(False)
    with pytest.raises(ConfigError, match="has no weight to train"):
        PolicyLearner(frozen, None, LearningConfig(), GRPO)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_offloaded_optimizer_moves_weights_as_one_beside_them(dtype: torch.dtype) -> None:
    """And each goes on from the state of the other."""

    def learner(offload: bool) -> PolicyLearner:
        config = LearningConfig(learning_rate=RATE, offload_optimizer=offload)
        return PolicyLearner(load_model().to(dtype), None, config, GRPO)

    plain, offloaded = learner(False), learner(True)
    assert all(master is not parameter for parameter, master in pairs(offloaded.optimizer))
    groups = make_groups(REWARDS)
    assert stepped(plain, groups) == stepped(offloaded, groups)
    states = copy.deepcopy((plain.state(), offloaded.state()))
    assert states[0]["masters"].keys() == states[1]["masters"].keys()
    for one, state in ((plain, states[1]), (offloaded, states[0])):
        one.load_state(state)
        stepped(one, groups)
    assert torch.equal(flat(plain.model.parameters()), flat(offloaded.model.parameters()))
