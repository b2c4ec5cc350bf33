"""The models of judges: an endpoint, an engine with a chat template, a script."""

import asyncio

import pytest

from judging_library import asker, episode
from tests.chat_server import serving
from tests.fakes import byte_tokenizer, small_model
from turnwise.chat.endpoint import Reply
from turnwise.engines.base import Completion, StopReason
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.engines.scripted import ScriptedEngine
from turnwise.errors import InfrastructureError
from turnwise_judges.asking import Limits
from turnwise_judges.models import EndpointModel, EngineModel, Policy, example_reply
from turnwise_judges.pointwise import PointwiseJudge

END = "</answer>"
"""A special token of the tokenizer in `fakes`, here the end of a turn."""
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}" + END + "{% endfor %}"
    "{% if add_generation_prompt %}judge:{% endif %}"
)
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + TEMPLATE
MESSAGES = [{"role": "system", "content": "Judge."}, {"role": "user", "content": f"a{END}b"}]


def tokenizer(template: str = TEMPLATE):
    made = byte_tokenizer()
    made.chat_template = template
    return made


def policy(engine=None, template: str = TEMPLATE, **settings) -> EngineModel:
    """The policy as a model; an engine that says nothing if none is given."""
    engine = engine or ScriptedEngine(lambda *_: [])
    return EngineModel(Policy(engine, tokenizer(template), lambda: ""), **settings)


async def test_an_endpoint_is_asked_in_chat_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "secret")
    with serving(lambda body, _: f"<think>hm</think>{example_reply(body['messages'])}") as server:
        model = EndpointModel(server.url, "m", key_variable="JUDGE_KEY", max_tokens=99)
        judge = PointwiseJudge(asker(model))
        assert await judge.measure_one(episode()) == 5.0
        (body,) = server.asked
        await judge.measure_one(episode("zipfile"))
    assert server.headers[0] == "Bearer secret"
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 99)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert 0 <= body["seed"] < 2**31
    assert server.asked[1]["seed"] != body["seed"]
    assert "secret" not in model.identity


async def test_the_policy_itself_is_asked_through_its_chat_template() -> None:
    made = tokenizer()
    opened: list[str] = []

    def answer(session: str, prompt: list[int]) -> list[int]:
        opened.append(session)
        text = made.decode(prompt)
        assert text.startswith("system: You judge")
        example = text.removesuffix(f"{END}judge:").splitlines()[-1]
        return made.encode(f"hm</think> {example}{made.eos_token}")

    engine = ScriptedEngine(answer)
    model = EngineModel(Policy(engine, made, lambda: "policy 3"))
    judge = PointwiseJudge(asker(model))
    assert await judge.measure_one(episode()) == 5.0
    assert judge.asker.counts.tokens > 500
    engine.open(opened[0])  # it was closed


def test_other_weights_are_another_judge() -> None:
    version = 1
    model = EngineModel(Policy(ScriptedEngine(lambda *_: []), tokenizer(), lambda: f"{version}"))
    first = model.identity
    version = 2
    assert model.identity != first


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        (TEMPLATE, f"system: Judge.{END}user: a{END}b{END}judge:"),
        (NO_SYSTEM, f"user: Judge.\n\na{END}b{END}judge:"),
    ],
    ids=["system", "none"],
)
def test_special_tokens_in_messages_are_only_text(template: str, shown: str) -> None:
    """In families without a system message too, which get it with the first."""
    made = tokenizer(template)
    prompt = policy(template=template).prompt(MESSAGES)
    assert made.decode(prompt) == shown
    own = prompt.count(made.convert_tokens_to_ids(END))
    assert own == shown.count(END) - 1, "those of the template"


async def test_a_record_beyond_the_context_says_what_to_lower() -> None:
    class Full(ScriptedEngine):
        async def generate(self, prompt, sampling, *, session, images=()):
            return Completion([], [], StopReason.CONTEXT, 0)

    model = policy(Full(lambda *_: []))
    with pytest.raises(InfrastructureError, match=r"lower judge\.max_characters"):
        await model.complete(MESSAGES)


async def test_a_call_beyond_its_deadline_releases_its_session() -> None:
    class Hanging(ScriptedEngine):
        async def generate(self, prompt, sampling, *, session, images=()):
            await asyncio.sleep(3600)

    engine = Hanging(lambda *_: [])
    model = policy(engine)
    judge = PointwiseJudge(asker(model, Limits(seconds=0.01)))
    with pytest.raises(InfrastructureError, match=r"no reply within 0\.01 s"):
        await judge.measure_one(episode())
    assert not engine._open


async def test_the_embedded_engine_samples_an_answer() -> None:
    made = tokenizer()
    engine = EmbeddedEngine(
        small_model(made), made, max_sequences=2, max_tokens=512, deterministic=True
    )
    model = policy(engine, temperature=1.0, max_tokens=8)

    async def ask() -> list[Reply]:
        replies = await asyncio.gather(*(model.complete(MESSAGES) for _ in range(3)))
        await engine.stop()
        return replies

    replies = await ask()
    prompt = len(model.prompt(MESSAGES))
    assert prompt < replies[0].tokens <= prompt + 8
    assert replies[0] == replies[1] == replies[2], "the seed follows from the messages"
