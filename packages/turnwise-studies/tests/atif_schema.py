"""ATIF 1.7 as its specification has it, for what is written here; names that it does not have are
refused. Written from section II of Harbor's rfcs/0001-trajectory-format.md."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Extra = dict[str, Any] | None
AGENTS = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")


class Part(BaseModel):
    """An object of the format."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Agent(Part):
    name: str
    version: str
    model_name: str | None = None
    extra: Extra = None


class ToolCall(Part):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class Result(Part):
    source_call_id: str | None = None
    content: str


class Observation(Part):
    results: list[Result]


class Metrics(Part):
    prompt_tokens: int
    completion_tokens: int
    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    logprobs: list[float] | None = None
    extra: Extra = None

    @model_validator(mode="after")
    def _lengths(self) -> Self:
        assert len(self.prompt_token_ids) == self.prompt_tokens
        assert len(self.completion_token_ids) == self.completion_tokens
        assert self.logprobs is None or len(self.logprobs) == self.completion_tokens
        return self


class Step(Part):
    step_id: int
    source: Literal["system", "user", "agent"]
    message: str
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = Field(None, ge=0)
    extra: Extra = None

    @model_validator(mode="after")
    def _fields_by_source(self) -> Self:
        assert self.source == "agent" or not set(AGENTS) & self.model_fields_set
        calls = {call.tool_call_id for call in self.tool_calls or ()}
        assert len(calls) == len(self.tool_calls or ())
        results = self.observation.results if self.observation else []
        assert {result.source_call_id for result in results} <= calls | {None}
        return self


class FinalMetrics(Part):
    total_prompt_tokens: int
    total_completion_tokens: int
    total_steps: int
    extra: Extra = None


class Trajectory(Part):
    schema_version: Literal["ATIF-v1.7"]
    session_id: str
    trajectory_id: str
    agent: Agent
    steps: list[Step] = Field(min_length=1)
    final_metrics: FinalMetrics
    extra: Extra = None

    @model_validator(mode="after")
    def _numbers(self) -> Self:
        assert [step.step_id for step in self.steps] == [*range(1, len(self.steps) + 1)]
        assert self.final_metrics.total_steps == len(self.steps)
        return self
