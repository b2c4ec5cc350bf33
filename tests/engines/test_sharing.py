"""Beginnings that another session has are copied and not computed again."""

import asyncio
from typing import Any

import pytest
from torch import Tensor

from tests.engines.driving import checked, each, running, sample
from tests.forward.models_for_tests import tiny_model
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.forward.small_llama import SmallLlama

pytestmark = pytest.mark.numbers

COMMON = [(7 * place + 3) % 250 for place in range(40)]
"""The prompt of a group."""


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
async def test_who_comes_later_copies_the_prompt(family: str) -> None:
    model = tiny_model(family)

    async def computed(engine: EmbeddedEngine, name: str, prompt: list[int]) -> int:
        """Tokens put through the model for three sampled ones."""
        before = engine.counters.computed
        engine.open(name)
        await checked(engine, model, prompt, 3, name, seed=len(name))
        return engine.counters.computed - before

    async with running(model, max_sequences=8, deterministic=False) as engine:
        assert await computed(engine, "first", COMMON) == 40 + 2
        assert await computed(engine, "same", COMMON) == 1 + 2
        assert await computed(engine, "branches", [*COMMON[:30], 9, 8, 7]) == 3 + 2
        assert await computed(engine, "too little in common", [*COMMON[:12], 9, 8]) == 14 + 2


@pytest.mark.parametrize("deterministic", [True, False])
async def test_prompts_that_begin_alike_are_computed_once(deterministic: bool) -> None:
    """Admitted together: the first is computed, then the others' ends."""
    model = tiny_model("llama")
    prompts = [[*COMMON, index, 5] for index in range(4)]

    async def turn(engine: EmbeddedEngine, index: int) -> None:
        await checked(engine, model, prompts[index], 3, str(index), seed=index)

    async with running(model, deterministic=deterministic) as engine:
        await each(engine, 4, lambda index: turn(engine, index))
        assert engine.counters.computed == 42 + 3 * 2 + 4 * 2


async def test_a_pass_says_how_much_all_histories_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as the prompt, and less while one has another."""
    model, said = tiny_model("qwen3"), []
    prompt = COMMON * 2
    forward = SmallLlama.forward

    def spied(self: SmallLlama, *arguments: Any) -> Tensor:
        said.append(arguments[4] if len(arguments) > 4 else 0)
        return forward(self, *arguments)

    monkeypatch.setattr(SmallLlama, "forward", spied)

    async def turn(engine: EmbeddedEngine, index: int) -> None:
        other = [*prompt[:70], *range(10, 20)] if index == 0 else prompt
        await checked(engine, model, other, 4 if index == 0 else 12, str(index), seed=index)

    async with running(model, max_sequences=10) as engine:
        await each(engine, 10, lambda index: turn(engine, index))
    assert {70, 80} <= set(said)
    assert max(said) < 80 + 3


async def test_new_weights_compute_a_common_prompt_once() -> None:
    """In the middle of turns, when trajectories have gone apart already."""
    model, other = tiny_model("qwen3"), tiny_model("qwen3", seed=4)
    sampled: list[int] = []
    async with running(model) as engine:

        async def turn(index: int) -> None:
            completion = await sample(engine, COMMON, 40, str(index), seed=index)
            sampled.append(len(completion.tokens))

        async def change() -> None:
            while engine.counters.sampled < 4 * 20:
                await asyncio.sleep(0)
            before = engine.counters.computed, engine.counters.sampled
            await engine.load_weights(dict(other.state_dict()), 1)
            apart = before[1] // 4
            while engine.counters.sampled < before[1] + 4:
                await asyncio.sleep(0)
            assert engine.counters.computed - before[0] <= 40 + 4 * apart

        await each(engine, 4, turn, change())
        assert sampled == [40] * 4


@pytest.mark.long
@pytest.mark.parametrize("passes", [0, 2])
async def test_in_lockstep_nothing_is_copied_from_who_has_ended(passes: int) -> None:
    """How soon such a session is closed depends on the clock: what is computed must not. All wait
    for the first one's beginning, which ends with that very pass; they are so many that lockstep
    goes on without it."""
    model = tiny_model("llama")
    async with running(model, max_sequences=16) as engine:

        async def turn(index: int) -> None:
            prompt = [*COMMON, index, 5]
            await checked(engine, model, prompt, 3 if index else 1, f"{index:02}", seed=index)
            while engine.counters.passes < passes:
                await asyncio.sleep(0)
            engine.close(f"{index:02}")

        for index in range(11):
            engine.open(f"{index:02}")
        await asyncio.gather(*(turn(index) for index in range(11)))
        prompts = engine.counters.computed - (engine.counters.sampled - 11)
        assert prompts == 42 + 42 + 9 * 2
