"""OpenTelemetry spans of an agent's episodes and calls, by its conventions for generative AI.

    invoke_agent NAME                    one for each episode
    └─ chat policy                       one for each request of the agent, or chat ROLE

The conventions (semantic-conventions 1.41, `gen_ai.*`) are in development, and have no place for
token ids: what is trained is in the run folder.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from turnwise.errors import MissingExtraError
from turnwise.tools.tool import in_thread
from turnwise.types import Trajectory
from turnwise_gateway.requests import Message, RefusedError, Reply, Request
from turnwise_gateway.session import Session

PROVIDER, ASKED = "turnwise", "gen_ai.request.model"
WITHOUT_WORDS = {"record_exception": False, "set_status_on_exception": False}
"""Settings of every span: the words of an exception may quote the agent."""
FLUSH_SECONDS = 10.0
"""Deadline of the last spans on their way."""
FINISH_REASONS = {"stop": "stop", "calls": "tool_call", "length": "length"}


class Spans:
    """The spans of a run. They go to the tracer provider that this process has, as under
    `opentelemetry-instrument`; else by OTLP to where OTEL_EXPORTER_OTLP_ENDPOINT says."""

    def __init__(self, agent: str, texts: bool, provider: Any = None) -> None:
        """`agent` is its name; `texts`: with messages and replies. `provider` stands in place of
        those. Raises MissingExtraError without the packages."""
        try:
            from opentelemetry import trace
            from opentelemetry.sdk.trace import TracerProvider
        except ModuleNotFoundError as error:
            raise MissingExtraError(str(error.name), "otel") from None
        self.agent, self.texts = agent, texts
        self._own: TracerProvider | None = None
        provider = provider or trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            provider = self._own = _provider()
        self.tracer = provider.get_tracer("turnwise")

    @contextmanager
    def episode(self, planned: Trajectory) -> Iterator["EpisodeSpans"]:
        """The span of an episode, in which those of its calls are."""
        from opentelemetry import trace

        given = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.agent.name": self.agent,
            "gen_ai.conversation.id": str(planned.id),
            "turnwise.task": planned.task.id,
        }
        with self.tracer.start_as_current_span(
            f"invoke_agent {self.agent}", attributes=given, **WITHOUT_WORDS
        ) as span:
            yield EpisodeSpans(self, span, trace.set_span_in_context(span), str(planned.id))

    async def close(self) -> None:
        """Send what is left, within FLUSH_SECONDS."""
        if self._own is not None:
            await in_thread(partial(self._own.force_flush, int(1000 * FLUSH_SECONDS)))
            await in_thread(self._own.shutdown)


class EpisodeSpans:
    """The spans of one episode. Example: `with spans.episode(planned) as episode: …`."""

    def __init__(self, spans: Spans, span: Any, context: Any, name: str) -> None:
        self._spans, self._span, self._context, self._name = spans, span, context, name

    async def call(self, session: Session, request: Request, again: bool) -> Reply:
        """Answer a request, in a span. Raises RefusedError as `Session.ask` does."""
        from opentelemetry.trace import SpanKind, StatusCode

        tracer, given = self._spans.tracer, _asked(session, request, self._name)
        if self._spans.texts:
            given["gen_ai.input.messages"] = json.dumps([_shown(one) for one in request.messages])
        with tracer.start_as_current_span(
            f"chat {given[ASKED]}", self._context, SpanKind.CLIENT, given, **WITHOUT_WORDS
        ) as span:
            try:
                reply = await session.ask(request, again)
            except RefusedError as refused:
                span.set_attribute("error.type", refused.field or refused.kind)
                span.set_status(StatusCode.ERROR)
                raise
            span.set_attributes(_answered(reply))
            if self._spans.texts:
                span.set_attribute("gen_ai.output.messages", json.dumps(_replies(reply)))
        return reply

    def ended(self, played: Trajectory) -> None:
        """Say how the episode ended; an ungraded one is an error."""
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("turnwise.outcome", str(played.outcome))
        if played.reward is not None:
            self._span.set_attribute("turnwise.reward", played.reward)
        if not played.outcome.graded:
            self._span.set_attribute("error.type", str(played.outcome))
            self._span.set_status(StatusCode.ERROR, played.problem if self._spans.texts else None)


def _provider() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": PROVIDER}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _asked(session: Session, request: Request, name: str) -> dict[str, Any]:
    given: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDER,
        # A name that there is not is the agent's words.
        ASKED: request.model if request.model in session.names else session.names[0],
        "gen_ai.conversation.id": name,
        "gen_ai.request.temperature": session.limits.temperature,
    }
    if request.max_tokens is not None:
        given["gen_ai.request.max_tokens"] = request.max_tokens
    if request.count != 1:
        given["gen_ai.request.choice.count"] = request.count
    return given


def _answered(reply: Reply) -> Mapping[str, Any]:
    return {
        "gen_ai.response.id": reply.id,
        "gen_ai.response.model": reply.model,
        "gen_ai.response.finish_reasons": [FINISH_REASONS[one.ending] for one in reply.choices],
        "gen_ai.usage.input_tokens": reply.prompt_tokens,
        "gen_ai.usage.output_tokens": reply.sampled,
    }


def _shown(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        answer = {"type": "tool_call_response", "id": message.call, "response": message.text}
        return {"role": "tool", "parts": [answer]}
    return {"role": message.role, "parts": _parts(message.text, message.calls)}


def _replies(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "role": "assistant",
            "parts": _parts(one.text, one.calls),
            "finish_reason": FINISH_REASONS[one.ending],
        }
        for one in reply.choices
    ]


def _parts(text: str, calls: Any) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    for call in calls:
        arguments = dict(call.arguments)
        parts.append(
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments}
        )
    return parts


async def asked(session: Session, request: Request, again: bool = False) -> Reply:
    """Answer a request of an agent, in a span where there are spans. Raises RefusedError."""
    if session.spans is None:
        return await session.ask(request, again)
    reply: Reply = await session.spans.call(session, request, again)
    return reply
