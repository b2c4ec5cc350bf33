"""What the engine computes: log-probabilities, caches, greedy text, weights, limits, stops."""

import asyncio
from collections.abc import Awaitable

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

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
from tests.forward.models_for_tests import ASCII, FAMILIES, VOCABULARY, tiny_model
from turnwise.engines.base import Completion, StopReason
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.errors import ConfigError

pytestmark = pytest.mark.numbers


@pytest.mark.long
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
async def test_logprobs_are_those_of_a_full_forward_pass(family: str, deterministic: bool) -> None:
    model = tiny_model(family)

    async def episode(engine: EmbeddedEngine, index: int) -> None:
        history = list(range(3 + index, 13 + 3 * index))
        for turn in range(3):
            how = {"temperature": 0.7, "seed": 10 * index + turn}
            completion = await checked(engine, model, history, 6 + 3 * index, str(index), **how)
            history += [*completion.tokens, *range(20, 22 + 4 * index)]
        engine.close(str(index))

    async with running(model, deterministic=deterministic) as engine:
        await each(engine, 6, lambda index: episode(engine, index))


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
async def test_a_turn_computes_only_what_is_new(family: str) -> None:
    """What the history goes on with, or all behind the place where it was changed."""
    model = tiny_model(family)
    async with running(model) as engine:
        engine.open("s")
        first = await sample(engine, PROMPT, 4)
        assert engine.counters.computed == len(PROMPT) + 3
        history = [*PROMPT, *first.tokens, 5, 6, 7, 8, 9]
        await checked(engine, model, history, 4)
        assert engine.counters.computed == len(PROMPT) + 3 + (1 + 5) + 3
        await checked(engine, model, [*PROMPT[:6], 77, 78, 79], 2)
        assert engine.counters.computed == len(PROMPT) + 12 + 3 + 1


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
async def test_a_history_that_several_sessions_have_is_computed_once(family: str) -> None:
    model = tiny_model(family)
    prompts = [PROMPT, PROMPT[:7], PROMPT, PROMPT, PROMPT[:7], [9, *PROMPT]]
    seeds = [0, 1, 2, 3, 1, 5]
    """Two sessions say the same in their first turn."""
    alone: list[list[int]] = []
    async with running(model) as engine:
        for index, prompt in enumerate(prompts):
            completion = await once(engine, prompt, 5, seed=seeds[index])
            alone.append(list(completion.tokens))
    async with running(model, max_sequences=8) as engine:

        async def episode(index: int) -> list[int]:
            first = await turn(index, prompts[index], seed=seeds[index])
            history = [*prompts[index], *first, 7, 8, 9]
            second = await turn(index, history, seed=50 + index)
            await turn(index, [*history, *second, 7], seed=70 + index)
            return first

        async def turn(index: int, history: list[int], seed: int) -> list[int]:
            completion = await checked(engine, model, history, 5, str(index), seed=seed)
            return list(completion.tokens)

        assert await each(engine, len(prompts), episode) == alone
        distinct = len(PROMPT) + 7 + (1 + len(PROMPT))
        second, third = (len(prompts) - 1) * 4, len(prompts) * 2
        assert engine.counters.computed == distinct + second + third + len(prompts) * 3 * 4


async def test_a_prompt_longer_than_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.engines.batches.PREFILL_TOKENS", 64)
    model = tiny_model("llama")
    prompt = [(7 * place) % 250 for place in range(2 * 64 + 26)]
    async with running(model, max_sequences=1) as engine:
        completion = await once(engine, prompt, 3)
        assert engine.counters.passes == 3 + 2
        assert_logprobs(model, prompt, completion)


async def test_a_seed_gives_the_same_tokens_among_neighbours() -> None:
    model = tiny_model("qwen3")
    alone: list[int] = []
    async with running(model) as engine:
        completion = await once(engine, PROMPT, 20, seed=5)
        alone.extend(completion.tokens)
    async with running(model, max_sequences=7, deterministic=False) as engine:

        def turn(index: int) -> Awaitable[Completion]:
            own = index == 4
            prompt, seed = (PROMPT, 5) if own else (PROMPT[index:], 100 + index)
            return sample(engine, prompt, 20, str(index), seed=seed)

        completions = await each(engine, 7, turn)
        assert list(completions[4].tokens) == alone
        assert all(list(c.tokens) != alone for c in completions[:4] + completions[5:])


@pytest.mark.parametrize(
    ("name", "message"),
    [("model.norm.wieght", "did you mean 'model.norm.weight'"), ("lm_head.weight", "lm_head")],
)
async def test_weights_that_do_not_fit_change_nothing(name: str, message: str) -> None:
    model = tiny_model("llama")
    before = model.model.norm.weight.clone()
    async with running(model) as engine:
        with pytest.raises(ConfigError, match=message):
            await engine.load_weights(
                {"model.norm.weight": torch.zeros(48), name: torch.zeros(7)}, 1
            )
        assert engine.version == 0
    assert torch.equal(model.model.norm.weight, before)


async def test_the_model_can_be_trained_between_requests() -> None:
    model = tiny_model("qwen3").train()
    model.model.layers[0].eval()
    async with running(model) as engine:
        await once(engine, PROMPT, 3)
    assert model.training
    assert model.model.layers[1].training
    assert not model.model.layers[0].training
    model(input_ids=torch.tensor([PROMPT]), labels=torch.tensor([PROMPT])).loss.backward()
    assert model.model.embed_tokens.weight.grad is not None


@pytest.mark.parametrize(("positions", "max_tokens"), [(512, 16), (16, 100)])
async def test_history_ends_at_the_context_limit(positions: int, max_tokens: int) -> None:
    async with running(tiny_model("qwen3", positions=positions), max_tokens=max_tokens) as engine:
        cut = await once(engine, PROMPT, 50)
        assert (len(cut.tokens), cut.stop_reason) == (6, StopReason.CONTEXT)
        none = await once(engine, PROMPT + PROMPT, 50)
        assert (len(none.tokens), none.stop_reason) == (0, StopReason.CONTEXT)


async def test_sampling_stops_with_the_token_that_completes_a_string() -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.lm_head.weight[:ASCII] *= 5
        model.lm_head.weight[ASCII:] = 0
    async with running(model) as engine:
        free = await once(engine, PROMPT, 30, seed=2)
        assert free.stop_reason == StopReason.MAX_TOKENS
        stop = TOKENIZER.decode(list(free.tokens[9:12]))
        assert len(stop) == 3
        stopped = await once(engine, PROMPT, 30, seed=2, stop=("</no>", stop))
        assert stopped.stop_reason == StopReason.STOP_STRING
        assert list(stopped.tokens) == list(free.tokens[:12])
        assert list(stopped.logprobs) == list(free.logprobs[:12])


async def test_end_of_text_is_kept() -> None:
    model = tiny_model("qwen3")
    model.generation_config.eos_token_id = [251, 252]
    with torch.no_grad():
        model.model.embed_tokens.weight[251:253] *= 1.5
    async with running(model) as engine:
        ended = await once(engine, PROMPT, 30, seed=2)
        assert ended.stop_reason == StopReason.END_OF_TEXT
        assert ended.tokens[-1] in (251, 252)
        assert not set(ended.tokens[:-1]) & {251, 252}


async def test_requests_that_make_no_sense_are_refused() -> None:
    async with running(tiny_model("qwen3")) as engine:
        for prompt in ([], [VOCABULARY], [-1]):
            with pytest.raises(ConfigError, match="prompt"):
                await once(engine, prompt, 1)
        with pytest.raises(ConfigError, match="temperature"):
            await once(engine, PROMPT, 1, temperature=-1)
        with pytest.raises(RuntimeError, match="not open"):
            await sample(engine, PROMPT, 1, "nobody")


async def test_logit_processors_change_what_is_sampled() -> None:
    """Those of transformers too; log-probabilities are of what they leave."""
    model = tiny_model("llama")
    lengths = []

    def only_even(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        lengths.append(ids.shape[1])
        logits[:, 1::2] = -torch.inf
        return logits

    penalty = RepetitionPenaltyLogitsProcessor(5.0)
    both = (penalty, only_even)
    async with running(model) as engine:
        for name in ("plain", "changed"):
            engine.open(name)
        plain, changed = await asyncio.gather(
            sample(engine, PROMPT, 12, "plain", seed=3),
            sample(engine, PROMPT, 12, "changed", seed=3, temperature=0.7, processors=both),
        )
        assert_logprobs(model, PROMPT, plain)
        assert any(token % 2 for token in plain.tokens)
        assert lengths == list(range(len(PROMPT), len(PROMPT) + len(changed.tokens)))
        history = list(PROMPT)
        for token, logprob in zip(changed.tokens, changed.logprobs, strict=True):
            assert token % 2 == 0
            ids = torch.tensor([history])
            with torch.no_grad():
                logits = only_even(ids, penalty(ids, model(input_ids=ids).logits[:, -1]))
            expected = (logits[0] / 0.7).log_softmax(-1)[token].item()
            assert logprob == pytest.approx(expected, abs=1e-4)
            history.append(token)
