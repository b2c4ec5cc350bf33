"""Images in the embedded engine: log-probabilities, and what is computed once or never shared."""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

from tests.engines.driving import PROMPT, each, running
from tests.forward.models_for_tests import tiny_model
from turnwise.engines.base import Completion, Sampling
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.errors import ConfigError
from turnwise.tokens import Image

pytest.importorskip("PIL", reason="turnwise[vision] is not installed")
from tests.rounding import assert_rounding
from tests.vision_models import FAMILIES, image, noise, own_logprobs, told, vision_model

pytestmark = pytest.mark.numbers

BEFORE, AFTER = list(range(5, 30)), list(range(40, 49))
Models = Callable[[str], tuple[Any, Any]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Model and tokenizer of a family, made when they are asked for first."""
    folder = tmp_path_factory.mktemp("models")
    return cache(lambda family: vision_model(folder / family, family))


async def turn(
    engine: EmbeddedEngine, session: str, ids: list[int], images: list[Image], seed: int = 0
) -> Completion:
    sampling = Sampling(max_tokens=5, seed=seed)
    return await engine.generate(ids, sampling, session=session, images=images)


def assert_own(done: Completion, model: Any, history: list[int], shown: list[Image]) -> None:
    """The log-probabilities are, up to rounding, those of the model's own forward on the history,
    which ends with what was sampled."""
    pngs, count = [image.png for image in shown], len(done.tokens)
    found = torch.tensor(done.logprobs)
    assert_rounding([found], model, lambda exact: [own_logprobs(exact, history, pngs, count)])


async def episode(engine: EmbeddedEngine, model: Any, index: int) -> None:
    """Two turns, with an image of its own before each; session 0 is told words alone."""
    shown = [noise(index, (16 * index, 32))] if index else []
    ids, images = told(model, BEFORE, *shown, AFTER)
    for number in range(2):
        done = await turn(engine, str(index), ids, images, seed=index % 2)
        ids += done.tokens
        assert_own(done, model, ids, images)
        new, shown = told(model, AFTER, noise(10 + index), AFTER[: 2 + number])
        images += [Image(len(ids) + p.start, p.length, p.png) for p in shown]
        ids += new
    engine.close(str(index))


@pytest.mark.long
@pytest.mark.parametrize(
    "family",
    ["llava", *(pytest.param(n, marks=pytest.mark.slow) for n in FAMILIES if n != "llava")],
)
@pytest.mark.parametrize("deterministic", [True, False])
async def test_logprobs_are_those_of_a_full_forward_pass_with_the_pixels(
    models: Models, family: str, deterministic: bool
) -> None:
    """With less room than the sessions need, so that some lose their cache and see again."""
    model, tokenizer = models(family)
    evictions = []
    async with running(
        model, 4, 200, deterministic, kv_cache_tokens=200, tokenizer=tokenizer
    ) as engine:
        await each(engine, 5, lambda index: episode(engine, model, index))
        evictions.append(engine.evictions)
    assert evictions[0] > 0


@pytest.mark.long
@pytest.mark.parametrize("family", ["llava", "qwen3_vl"])
async def test_two_images_with_the_same_ids_are_two_histories(models: Models, family: str) -> None:
    model, tokenizer = models(family)
    (ids, one), (same, other) = (
        told(model, BEFORE, image(*greys), AFTER) for greys in ((0, 255), (255, 0))
    )
    assert ids == same
    async with running(model, tokenizer=tokenizer) as engine:
        for name in ("a", "b", "c"):
            engine.open(name)
        shown = {"a": one, "b": other, "c": one}
        turns = (turn(engine, name, ids, images) for name, images in shown.items())
        done = dict(zip(shown, await asyncio.gather(*turns), strict=True))
        for name, images in shown.items():
            history = [*ids, *done[name].tokens]
            assert_own(done[name], model, history, images)
        assert done["a"].logprobs == done["c"].logprobs
        assert done["a"].logprobs[0] != pytest.approx(done["b"].logprobs[0], abs=1e-3)
        # "c" is computed with "a"; "b" has its words before the image from "a".
        start = one[0].start
        sampled = sum(len(completion.tokens) - 1 for completion in done.values())
        assert engine.counters.computed == len(ids) + (len(ids) - start) + sampled


@pytest.mark.long
@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
async def test_a_session_whose_image_changes_keeps_what_is_before_it(
    models: Models, family: str
) -> None:
    model, tokenizer = models(family)
    ids, before = told(model, BEFORE, image(0, 255), AFTER)
    _, after = told(model, BEFORE, image(255, 0), AFTER)
    async with running(model, tokenizer=tokenizer) as engine:
        engine.open("s")
        await turn(engine, "s", ids, before)
        computed = engine.counters.computed
        done = await turn(engine, "s", ids, after)
        assert_own(done, model, [*ids, *done.tokens], after)
        new = len(ids) - after[0].start + len(done.tokens) - 1
        assert engine.counters.computed == computed + new


@pytest.mark.parametrize("family", ["llava", "qwen3_vl"])
async def test_an_image_may_be_cut_by_a_prefill(
    models: Models, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = models(family)
    ids, images = told(model, BEFORE, noise(3, (16, 48)), AFTER)
    assert images[0].length > 1
    monkeypatch.setattr("turnwise.engines.batches.PREFILL_TOKENS", images[0].start + 1)
    async with running(model, 1, tokenizer=tokenizer) as engine:
        engine.open("s")
        done = await turn(engine, "s", ids, images)
        assert_own(done, model, [*ids, *done.tokens], images)


async def test_a_placeholder_that_the_model_samples_is_a_word(models: Models) -> None:
    """And a logit processor is shown the model's ids."""
    model, tokenizer = models("llava")
    ids, images = told(model, BEFORE, image(0, 255), AFTER)
    seen: list[list[int]] = []

    def favour(history: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        seen.append(history[0].tolist())
        return logits.index_fill(1, torch.tensor([model.config.image_token_id]), 100.0)

    async with running(model, tokenizer=tokenizer) as engine:
        engine.open("s")
        sampling = Sampling(max_tokens=2, processors=(favour,))
        done = await engine.generate(ids, sampling, session="s", images=images)
        assert list(done.tokens) == [model.config.image_token_id] * 2
        assert seen[1] == [*ids, done.tokens[0]]
        history = [*ids, *done.tokens, *AFTER]
        again = await turn(engine, "s", history, images)
        engine.close("s")
        engine.open("fresh")
        fresh = await turn(engine, "fresh", history, images)
        assert list(again.logprobs) == pytest.approx(list(fresh.logprobs), abs=1e-4)


async def test_a_model_of_words_takes_no_images() -> None:
    async with running(tiny_model("qwen3")) as engine:
        engine.open("s")
        with pytest.raises(ConfigError, match="Qwen3ForCausalLM takes no images"):
            await turn(engine, "s", PROMPT, [Image(2, 3, b"")])
