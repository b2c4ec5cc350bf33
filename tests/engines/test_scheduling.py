"""When the engine computes what: lockstep, bounds, cancellation, failure, stopping, loading."""

import asyncio
import random
from typing import Any

import pytest
import torch
from transformers import Qwen3ForCausalLM

from tests.engines.driving import (
    PROMPT,
    TOKENIZER,
    assert_logprobs,
    checked,
    each,
    once,
    running,
    sample,
)
from tests.forward.models_for_tests import reference_logprobs, tiny_model
from turnwise.engines.base import Completion, Engine, Sampling
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.errors import ConfigError, InfrastructureError

Record = dict[str, list[tuple[list[int], list[float]]]]


class BrokenModel(Qwen3ForCausalLM):
    """A model with a bug that shows once it is set."""

    broken = False

    def forward(self, input_ids: Any = None, position_ids: Any = None, **kwargs: Any) -> Any:
        if self.broken:
            raise ArithmeticError("a bug in the model")
        return super().forward(input_ids, position_ids=position_ids, **kwargs)


async def play(
    engine: Engine,
    sessions: int,
    seed: int,
    turns: int = 4,
    record: Record | None = None,
    longer: int = 0,
) -> None:
    """Episodes of several turns, with tools that take random times."""
    clock = random.Random(seed)

    async def episode(name: str, index: int) -> None:
        history = PROMPT[: 3 + index % 6]
        for turn in range(turns - index % 2):
            await asyncio.sleep(clock.choice([0, 0, 0.001, 0.004]))
            sampling = Sampling(
                max_tokens=longer + 4 + (5 * index + turn) % 9, seed=100 * index + turn
            )
            completion = await engine.generate(history, sampling, session=name)
            if record is not None:
                record[name].append((list(completion.tokens), list(completion.logprobs)))
            history = [*history, *completion.tokens, *range(2, 4 + index)]
        await asyncio.sleep(clock.choice([0, 0.003]))
        engine.close(name)

    names = [f"{index:02}" for index in range(sessions)]
    for name in names:
        engine.open(name)
        if record is not None:
            record[name] = []
    await asyncio.gather(*(episode(name, index) for index, name in enumerate(names)))


@pytest.mark.long
@pytest.mark.parametrize(("max_sequences", "kv_cache_tokens"), [(10, None), (3, None), (10, 250)])
async def test_lockstep_is_bit_identical_whatever_tools_take(
    max_sequences: int, kv_cache_tokens: int | None
) -> None:
    model = tiny_model("qwen3")
    records: list[Record] = [{}, {}, {}]
    passes = set()

    for seed, record in enumerate(records):
        async with running(model, max_sequences, kv_cache_tokens=kv_cache_tokens) as engine:
            await play(engine, 10, seed, record=record)
            passes.add((engine.counters.passes, engine.evictions))
    assert records[0] == records[1] == records[2]
    assert len(passes) == 1
    assert all(len(turns) >= 3 for turns in records[0].values())


async def test_the_session_idle_for_longest_gives_up_its_place() -> None:
    model = tiny_model("qwen3")
    async with running(model, max_sequences=2, deterministic=False) as engine:

        async def turn(name: str) -> int:
            """Tokens computed for two sampled ones after a prompt that may be cached."""
            before = engine.counters.computed
            await checked(engine, model, PROMPT, 2, name)
            return engine.counters.computed - before

        for name in "abc":
            engine.open(name)
        whole, cached = len(PROMPT) + 1, 2
        assert [await turn(name) for name in "abac"] == [whole, whole, cached, whole]
        assert [await turn(name) for name in "ab"] == [cached, whole]


async def test_runs_stay_right_while_neighbours_come_and_go() -> None:
    """Short and long requests interleave, so that running sessions are brought together."""
    model = tiny_model("llama")

    async def turn(engine: EmbeddedEngine, index: int, budget: int) -> Completion:
        prompt = [index, *PROMPT]
        return await checked(engine, model, prompt, budget, str(index), seed=index)

    async with running(model, max_sequences=8, deterministic=False) as engine:
        budgets = [2, 3, 2, 40, 2, 3, 40, 40]
        completions = await each(engine, 8, lambda index: turn(engine, index, budgets[index]))
        computed = engine.counters.computed
        history = [0, *PROMPT, *completions[0].tokens, 9]
        await checked(engine, model, history, 5, "0")
        assert engine.counters.computed == computed + 2 + 4


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "deterministic"), [("qwen3", True), ("qwen3", False), ("gemma3", True)]
)
async def test_a_small_budget_costs_work_and_nothing_else(family: str, deterministic: bool) -> None:
    """Histories outgrow the cache in the middle of their turns: some give way, and go on later with
    the same tokens and log-probabilities."""
    model = tiny_model(family)
    records: list[Record] = [{}, {}]
    evictions = []

    for kv_cache_tokens, record in zip((None, 330), records, strict=True):
        async with running(model, 6, 260, deterministic, kv_cache_tokens) as engine:
            await play(engine, 6, seed=0, turns=3, record=record, longer=50)
            evictions.append(engine.evictions)
    assert evictions[0] == 0
    assert evictions[1] > 0
    assert records[0].keys() == records[1].keys()
    for name, turns in records[0].items():
        for (tokens, logprobs), (others, same) in zip(turns, records[1][name], strict=True):
            assert tokens == others
            assert logprobs == pytest.approx(same, abs=1e-4)


@pytest.mark.parametrize("deterministic", [True, False])
async def test_closing_a_session_cancels_its_request(deterministic: bool) -> None:
    async with running(
        tiny_model("qwen3"), 2, max_tokens=500, deterministic=deterministic
    ) as engine:
        for name in ("long", "short"):
            engine.open(name)
        endless = asyncio.create_task(sample(engine, PROMPT, 400, "long"))
        short = asyncio.create_task(sample(engine, PROMPT, 5, "short"))
        await short
        engine.close("short")
        engine.close("long")
        engine.close("long")
        with pytest.raises(asyncio.CancelledError):
            await endless
        await asyncio.gather(play(engine, 3, seed=0))


@pytest.mark.parametrize("deterministic", [True, False])
async def test_a_cancelled_request_gives_way_at_once(deterministic: bool) -> None:
    """Before its own task has run again, to one that needs all the room there is."""
    model = tiny_model("qwen3")
    async with running(model, 2, 90, deterministic, 90) as engine:
        for name in "ab":
            engine.open(name)
        first, second = (
            asyncio.create_task(sample(engine, PROMPT, most, name))
            for name, most in (("a", 80), ("b", 4))
        )
        while engine.counters.sampled < 3:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        engine.close("a")
        assert_logprobs(model, PROMPT, await second)


async def test_one_request_at_a_time_in_a_session() -> None:
    async with running(tiny_model("qwen3")) as engine:
        engine.open("s")
        with pytest.raises(RuntimeError, match="open already"):
            engine.open("s")
        task = asyncio.create_task(sample(engine, PROMPT, 5))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="under way"):
            await sample(engine, PROMPT, 5)
        assert len((await task).tokens) == 5


@pytest.mark.parametrize("deterministic", [True, False])
async def test_a_bug_in_the_model_reaches_every_request(deterministic: bool) -> None:
    model = BrokenModel(tiny_model("qwen3").config)
    async with running(model, max_sequences=2, deterministic=deterministic) as engine:
        model.broken = True
        for index in range(3):
            engine.open(str(index))
        requests = [sample(engine, PROMPT, 5, str(i)) for i in range(3)]
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(result) for result in results] == [ArithmeticError] * 3


async def test_diverged_weights_are_an_infrastructure_error() -> None:
    model = tiny_model("qwen3")
    async with running(model) as engine:
        good = {name: weight.clone() for name, weight in model.state_dict().items()}
        await engine.load_weights({"model.norm.weight": torch.full((48,), torch.nan)}, 1)
        with pytest.raises(InfrastructureError, match="diverged"):
            await once(engine, PROMPT, 2)
        await engine.load_weights(good, 2)
        completion = await once(engine, PROMPT, 2)
        assert completion.version == 2
        assert_logprobs(model, PROMPT, completion)


async def test_stopping_fails_requests_that_wait() -> None:
    async with running(tiny_model("qwen3")) as engine:
        for name in ("here", "absent"):
            engine.open(name)
        request = asyncio.create_task(sample(engine, PROMPT, 5, "here"))
        done, _ = await asyncio.wait({request}, timeout=0.05)
        assert not done
        assert engine.counters.passes == 0
        await engine.stop()
        await engine.stop()
        with pytest.raises(InfrastructureError, match="stopped"):
            await request
        with pytest.raises(InfrastructureError, match="stopped"):
            await sample(engine, PROMPT, 5, "absent")


@pytest.mark.long
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
async def test_weights_change_in_the_middle_of_a_turn(family: str, deterministic: bool) -> None:
    """Every token is that of one version, given all tokens before it."""
    model, old, new = (tiny_model(family, seed=seed) for seed in (0, 0, 4))

    async def turn(engine: EmbeddedEngine, index: int) -> None:
        prompt = PROMPT[index:]
        completion = await sample(engine, prompt, 40, str(index), temperature=0.8, seed=index)
        changed = completion.version.index(1)
        assert completion.version == [0] * changed + [1] * (40 - changed)
        assert 0 < changed < 40
        history = [*prompt, *completion.tokens]
        before = reference_logprobs(old, history[: len(prompt) + changed], changed, 0.8)
        after = reference_logprobs(new, history, 40 - changed, 0.8)
        assert list(completion.logprobs) == pytest.approx([*before, *after], abs=1e-4)

    async def change(engine: EmbeddedEngine) -> None:
        while engine.counters.sampled < 20:
            await asyncio.sleep(0)
        await engine.load_weights(dict(new.state_dict()), 1)
        assert engine.version == 1

    async with running(model, deterministic=deterministic) as engine:
        await each(engine, 3, lambda index: turn(engine, index), change(engine))


async def test_weights_change_while_lockstep_waits() -> None:
    model, other = tiny_model("llama"), tiny_model("llama", seed=4)
    async with running(model) as engine:
        for name in ("here", "absent"):
            engine.open(name)
        request = asyncio.create_task(sample(engine, PROMPT, 5, "here"))
        await asyncio.sleep(0.02)
        await engine.load_weights(dict(other.state_dict()), 1)
        assert engine.counters.passes == 0
        engine.close("absent")
        completion = await request
        assert completion.version == 1
        assert_logprobs(other, PROMPT, completion)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("deterministic", [True, False])
async def test_an_episode_goes_on_with_new_weights(deterministic: bool, in_place: bool) -> None:
    """Weights change between two turns of an episode, those of the engine's own model by whoever
    trains it too: what is cached is computed again, so the next turn is that of the new weights
    alone, over the whole history."""
    model, other = tiny_model("qwen3"), tiny_model("qwen3", seed=4)
    old = tiny_model("qwen3")
    async with running(model, deterministic=deterministic) as engine:
        engine.open("s")
        first = await sample(engine, PROMPT, 6)
        if in_place:
            model.load_state_dict(other.state_dict())
        await engine.load_weights({} if in_place else dict(other.state_dict()), 1)
        before = engine.counters.computed
        history = [*PROMPT, *first.tokens, 9, 7]
        second = await sample(engine, history, 6)
        assert engine.counters.computed - before == len(history) + 5
        assert (first.version, second.version) == (0, 1)
        assert_logprobs(old, PROMPT, first)
        assert_logprobs(other, history, second)


def test_an_engine_works_in_one_event_loop_after_another() -> None:
    model = tiny_model("qwen3")
    engine = EmbeddedEngine(model, TOKENIZER, max_sequences=2, max_tokens=60, deterministic=True)
    for turn in range(2):
        completion = asyncio.run(once(engine, PROMPT, 3, seed=turn))
        assert_logprobs(model, PROMPT, completion)
    asyncio.run(engine.stop())


def test_impossible_engines_are_refused() -> None:
    model = tiny_model("qwen3")
    for max_sequences, max_tokens, kv_cache_tokens in ((0, 10, None), (1, 1, None), (4, 100, 99)):
        with pytest.raises(ConfigError):
            EmbeddedEngine(
                model,
                TOKENIZER,
                max_sequences=max_sequences,
                max_tokens=max_tokens,
                deterministic=True,
                kv_cache_tokens=kv_cache_tokens,
            )
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ConfigError, match="sdpa"):
        EmbeddedEngine(model, TOKENIZER, max_sequences=1, max_tokens=10, deterministic=True)
