"""OpenTelemetry spans: one for each episode and each call, and no text unless it is asked for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway_tests.hashed_engine import TOKENIZER, HashedEngine, encode
from gateway_tests.playing import RIGHT, SCAFFOLD, group_of, written
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.settings import RoleConfig
from turnwise_gateway.spans import Spans

pytest.importorskip("uvicorn")
pytest.importorskip("opentelemetry.sdk")
AGENT = """
async def run(task, model):
    await model.chat([{"role": "user", "content": task.prompt}])
    try:
        await model.chat([{"role": "robot", "content": "secret words"}])
    except Exception:
        pass
    await model.chat([{"role": "user", "content": "Sure?"}], role=model.roles[1])
"""


def play(folder: Path, texts: bool, fails: tuple[int, ...] = ()) -> Any:
    """Two episodes; their spans, as they were exported."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    engine = HashedEngine([RIGHT], fails)
    roles = {"policy": RoleConfig(), "critic": RoleConfig()}
    host = make_host(written(folder, AGENT, roles=roles), SCAFFOLD, TOKENIZER)
    host = replace(host, spans=Spans("mine", texts, provider))
    group_of(host, engine, episodes=2)
    return exporter.get_finished_spans()


def test_each_episode_has_a_span_and_each_call_one_in_it(tmp_path: Path) -> None:
    """Without any text."""
    spans = play(tmp_path, texts=False)
    episodes = {one.context.span_id: one for one in spans if one.name == "invoke_agent mine"}
    calls = [one for one in spans if one.name.startswith("chat ")]
    assert {one.name for one in calls} == {"chat policy", "chat critic"}
    assert (len(episodes), len(calls), len(spans)) == (2, 4, 6)
    assert len({one.context.trace_id for one in spans}) == 2
    for one in episodes.values():
        assert one.attributes["gen_ai.operation.name"] == "invoke_agent"
        assert (one.attributes["turnwise.outcome"], one.attributes["turnwise.reward"]) == (
            "success",
            1.0,
        )
    for one in calls:
        episode = episodes[one.parent.span_id]
        named = "gen_ai.conversation.id"
        assert one.attributes[named] == episode.attributes[named]
        for model in ("gen_ai.request.model", "gen_ai.response.model"):
            assert one.name == f"chat {one.attributes[model]}"
        assert one.attributes["gen_ai.response.finish_reasons"] == ("stop",)
        assert one.attributes["gen_ai.usage.output_tokens"] == len(
            encode("<answer> Paris</answer>")
        )
        assert one.attributes["gen_ai.usage.input_tokens"] > 0
        assert episode.start_time <= one.start_time <= one.end_time <= episode.end_time
    silent = "".join(one.to_json() for one in spans)
    assert "Capital of" not in silent
    assert "Paris" not in silent


def test_text_is_in_them_where_it_is_asked_for(tmp_path: Path) -> None:
    told = [one for one in play(tmp_path, texts=True) if one.name == "chat policy"]
    asked = [json.loads(one.attributes["gen_ai.input.messages"]) for one in told]
    first = [{"type": "text", "content": "Capital of France?"}]
    assert [{"role": "user", "parts": first}] in asked
    (said,) = json.loads(told[0].attributes["gen_ai.output.messages"])
    assert (said["parts"], said["finish_reason"]) == (
        [{"type": "text", "content": "Paris"}],
        "stop",
    )


def test_a_failure_is_an_error_of_the_call_and_of_the_ungraded_episode(tmp_path: Path) -> None:
    spans = play(tmp_path, texts=False, fails=(1, 2, 3, 4))
    kinds = [(one.name, one.attributes["error.type"]) for one in spans]
    assert kinds.count(("chat policy", "api_error")) == 2
    assert kinds.count(("invoke_agent mine", "infrastructure_model")) == 2
    assert not any(one.status.is_ok for one in spans)
