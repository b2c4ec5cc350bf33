"""Images through vLLM: a server reads the tokens that are learned from, and sees what they mean."""

import base64
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from fake_vllm import FakeVllm, Json, Lies
from turnwise.engines.base import Sampling
from turnwise.engines.sampling import sample, uniforms
from turnwise.errors import ConfigError, InfrastructureError, RunStoppedError
from turnwise.tokens import Image
from turnwise_vllm.completions import shown
from turnwise_vllm.engine import VllmEngine
from vllm_driving import LIMIT, change, driven, play

pytest.importorskip("PIL", reason="turnwise[vision] is not installed")
import PIL.Image

from tests.vision_models import noise, own_logits, own_logprobs, told, vision_model

BEFORE, AFTER = [70, 71, 72], [80, 81]
SAMPLED = 3


class Seeing:
    """A server's model, which makes the tokens of images as vLLM does."""

    def __init__(self, model: Any) -> None:
        self.model, self._reader = model, model.image_reader
        self.behind: list[int] = []
        """Tokens that it puts behind an image, and its processor does not."""
        self.blind = False
        """Whether it sees one image in place of all."""

    def load(self, folder: str) -> None:
        self.model, _ = vision_model(Path(folder))  # with its image processor

    def read(self, ids: list[int], pngs: list[bytes]) -> list[int]:
        """Each image in place of the first placeholder that is left."""
        found: list[int] = []
        for png in pngs:
            place = ids.index(self._reader.token)
            found += ids[:place] + self._reader.tokens(png) + self.behind
            ids = ids[place + 1 :]
        return found + ids

    def __call__(self, body: Json) -> tuple[list[int], list[float], str]:
        history, logprobs = list(body["prompt"]), []
        pngs = [noise(99) for _ in body["pngs"]] if self.blind else body["pngs"]
        for draw in uniforms(body["seed"], body["max_tokens"]):
            logits = own_logits(self.model, history, pngs)[-1:]
            sampling = Sampling(1, temperature=body["temperature"])
            tokens, found, _ = sample(logits, [sampling], [draw])
            history, logprobs = history + tokens, logprobs + found
        return history[len(body["prompt"]) :], logprobs, "length"


@asynccontextmanager
async def seen(tmp_path: Path) -> AsyncIterator[tuple[VllmEngine, Any, FakeVllm, Seeing]]:
    """The engine over one server, the model, and the server."""
    model, tokenizer = vision_model(tmp_path / "model")
    seeing = Seeing(vision_model(tmp_path / "model")[0])
    server = FakeVllm(seeing)
    server.on_load = lambda folder: seeing.load(folder) if folder else None
    server.read = seeing.read
    given = {"make": lambda: (model, tokenizer), "parity_bound": 1e-4}
    async with driven(tmp_path / "run", [server], **given) as (engine, own):
        yield engine, own, server, seeing


@pytest.mark.long
async def test_a_turn_after_images_is_what_the_learner_scores(tmp_path: Path) -> None:
    async with seen(tmp_path) as (engine, model, server, _):
        await engine.load_weights({}, 0)
        change(model.get_decoder())
        await engine.load_weights({}, 1)
        assert any(body["pngs"] for body in server.bodies)  # parity's
        ids, images = told(model, BEFORE, noise(1), AFTER, noise(2), AFTER)
        assert len(ids) + SAMPLED <= LIMIT
        done = await play(engine, ids, Sampling(SAMPLED, seed=1), "one", images)
        assert server.bodies[-1]["prompt"] == ids
        assert server.bodies[-1]["pngs"] == [noise(1), noise(2)]
        own = own_logprobs(model, [*ids, *done.tokens], [noise(1), noise(2)], SAMPLED)
        assert torch.tensor(done.logprobs) == pytest.approx(own, abs=1e-5)
        assert set(done.version) == {1}


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"behind": [5]}, "cannot be compared .* vLLM read 33 other tokens than the 32 of the"),
        ({"blind": True}, "differ from the model's by"),
        ({"lies": Lies(without="prompt_token_ids")}, "vLLM does not say which tokens it read"),
    ],
)
async def test_a_server_that_sees_otherwise_is_found_at_the_first_update(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    async with seen(tmp_path) as (engine, _, server, seeing):
        for name, value in wrong.items():
            setattr(server if name == "lies" else seeing, name, value)
        with pytest.raises(RunStoppedError, match=message):
            await engine.load_weights({}, 0)


@pytest.mark.long
async def test_an_answer_to_another_prompt_is_not_counted(tmp_path: Path) -> None:
    async with seen(tmp_path) as (engine, model, _, seeing):
        await engine.load_weights({}, 0)
        seeing.behind = [5]
        ids, images = told(model, BEFORE, noise(1), AFTER)
        with pytest.raises(InfrastructureError, match="vLLM read 22 other tokens than the 21"):
            await play(engine, ids, Sampling(SAMPLED, seed=1), "one", images)


def test_placeholders_that_the_model_wrote_itself(tmp_path: Path) -> None:
    """Behind all images they are tokens like others; before one the server would take them for
    it."""
    model, _ = vision_model(tmp_path / "model")
    token = model.image_reader.token
    ids, images = told(model, BEFORE, noise(1), [*AFTER, token])
    told_so = shown(ids, images, model.image_reader)
    assert Seeing(model).read(told_so["token_ids"], [noise(1)]) == ids
    ids, images = told(model, [*BEFORE, token], noise(1), AFTER)
    with pytest.raises(InfrastructureError, match="wrote the placeholder of images itself"):
        shown(ids, images, model.image_reader)


def test_a_server_is_not_sent_what_it_would_lay_over_white(tmp_path: Path) -> None:
    model, _ = vision_model(tmp_path / "model")
    file = io.BytesIO()
    PIL.Image.new("RGBA", (16, 16), (200, 0, 0, 9)).save(file, "PNG")
    (part,) = shown(*told(model, BEFORE, file.getvalue()), model.image_reader)["content_parts"]
    sent = PIL.Image.open(io.BytesIO(base64.b64decode(part["url"].partition(",")[2])))
    assert (sent.mode, sent.getpixel((0, 0))) == ("RGB", (200, 0, 0))


def test_a_model_without_eyes_is_shown_nothing() -> None:
    assert shown([5, 6], [], None) == {}
    with pytest.raises(ConfigError, match="takes no images"):
        shown([5, 6], [Image(0, 1, b"")], None)
