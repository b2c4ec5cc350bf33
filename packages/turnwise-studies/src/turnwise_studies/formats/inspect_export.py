"""An evaluation of a run as a log of Inspect's (https://inspect.aisi.org.uk/eval-logs.html), for
its viewer and its data frames. Needs the extra inspect."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from turnwise.config import RolloutConfig
from turnwise.errors import ConfigError, DataError, MissingExtraError
from turnwise.evaluation.statement import commit
from turnwise.scaffolds.text import texts_for_calls
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows, step_of
from turnwise.tokens import Source
from turnwise.types import Observation, Outcome

LIMITS: Mapping[Outcome, tuple[str, str]] = {
    Outcome.TRUNCATED_TURNS: ("turn", "max_turns"),
    Outcome.TRUNCATED_TOKENS: ("token", "max_tokens"),
    Outcome.TRUNCATED_CONTEXT: ("context", "max_tokens"),
    Outcome.TRUNCATED_TOOL_CALLS: ("custom", "max_tool_calls"),
    Outcome.TRUNCATED_TIME: ("time", "max_seconds"),
}
"""Inspect's word for a limit, and the key of `rollout` that sets it."""
SCORER = "verifier"
Row = Mapping[str, Any]


def export_inspect(folder: RunFolder, file: Path, evaluation: str = "trained") -> int:
    """Write an evaluation as a log of Inspect's: .eval, or .json. Returns the number of samples.

    A task is a sample, an episode an epoch; ungraded ones have an error. Secrets are not written:
    samples have no target. Raises ConfigError for a file of another kind, DataError where it exists
    or the run has no such evaluation, and MissingExtraError without Inspect.
    """
    if file.suffix not in (".eval", ".json"):
        raise ConfigError(f"--inspect {file}: give a file whose name ends with .eval or .json")
    if file.exists():
        raise DataError(f"{file} exists already: choose another file")
    trajectories = folder.path / "trajectories" / f"evaluation-{evaluation}.parquet"
    summary = folder.evaluation(evaluation)
    if summary is None or not trajectories.is_file():
        raise DataError(f"{folder.path} has no evaluation {evaluation!r} yet")
    rows = read_rows(trajectories)
    try:
        from inspect_ai.log import EvalLog, write_eval_log
    except ImportError:
        raise MissingExtraError("inspect-ai", "inspect") from None
    limits = folder.recipe().rollout
    log = EvalLog(
        status="success",
        eval=_spec(folder, evaluation, rows, summary),
        results=_results(rows, summary),
        samples=[_sample(row, limits) for row in rows],
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_eval_log(log, str(file))
    return len(rows)


def _spec(
    folder: RunFolder, evaluation: str, rows: Sequence[Row], summary: Mapping[str, Any]
) -> Any:
    from inspect_ai.log import EvalConfig, EvalDataset, EvalSpec

    recipe = folder.recipe()
    limits = recipe.rollout
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    written = (folder.path / "evaluations" / f"{evaluation}.json").stat().st_mtime
    return EvalSpec(
        created=datetime.fromtimestamp(written, UTC).isoformat(),
        task=recipe.environment.name,
        task_args={**recipe.environment.options},
        dataset=EvalDataset(name=summary.get("environment"), samples=len(tasks), sample_ids=tasks),
        model=f"turnwise/{recipe.model.name}",
        model_args={"run": str(folder.path), "step": summary.get("step")},
        config=EvalConfig(
            epochs=recipe.evaluation.episodes_per_task,
            token_limit=limits.max_tokens,
            turn_limit=limits.max_turns,
        ),
        packages={"turnwise": version("turnwise")},
        metadata={"evaluation": evaluation, "commit": commit(), "recipe": recipe.model_dump()},
    )


def _results(rows: Sequence[Row], summary: Mapping[str, Any]) -> Any:
    from inspect_ai.log import EvalMetric, EvalResults, EvalScore

    values = {"accuracy": summary["success"], "low": summary["low"], "high": summary["high"]}
    score = EvalScore(
        name=SCORER,
        scorer=SCORER,
        scored_samples=summary["n"],
        unscored_samples=summary["ungraded"],
        metrics={name: EvalMetric(name=name, value=value) for name, value in values.items()},
    )
    return EvalResults(total_samples=len(rows), completed_samples=summary["n"], scores=[score])


def _sample(row: Row, limits: RolloutConfig) -> Any:
    from inspect_ai.log import EvalError, EvalSample, EvalSampleLimit
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import CORRECT, INCORRECT, Score

    outcome = Outcome(row["outcome"])
    scores, error, limit = None, None, None
    if outcome.graded and row["success"] is not None:
        facts = {"reward": row["reward"], "outcome": row["outcome"], **json.loads(row["parts"])}
        value = CORRECT if row["success"] else INCORRECT
        score = Score(value=value, answer=row["answer"], explanation=row["detail"], metadata=facts)
        scores = {SCORER: score}
    else:
        message = f"{row['outcome']}: {row['problem']}"
        error = EvalError(message=message, traceback=message, traceback_ansi=message)
    if outcome in LIMITS:
        kind, key = LIMITS[outcome]
        limit = EvalSampleLimit(type=kind, limit=getattr(limits, key))
    return EvalSample(
        id=row["task"],
        epoch=row["episode"] + 1,
        input=row["prompt"],
        target="",
        messages=list(_messages(row)),
        output=ModelOutput.from_content("turnwise", row["answer"] or ""),
        scores=scores,
        error=error,
        limit=limit,
        metadata={"seed": row["seed"], "sampled": sum(s == Source.MODEL for s in row["source"])},
        turn_count=row["turns"],
    )


def _messages(row: Row) -> Iterator[Any]:
    """A message for each turn, each call's result, and every other observation."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ChatMessageUser
    from inspect_ai.tool import ToolCall, ToolCallError

    yield ChatMessageUser(content=row["prompt"])
    turns = zip(json.loads(row["actions"]), json.loads(row["steps"]), strict=True)
    for number, (action, values) in enumerate(turns):
        calls = [
            ToolCall(call["id"] or f"{number}.{place}", call["name"], call["arguments"])
            for place, call in enumerate(action["calls"])
        ]
        yield ChatMessageAssistant(content=action["text"], tool_calls=calls or None)
        if values is None:
            continue
        step = step_of(values)
        shown = step.observation or Observation("\n".join(one.content for one in step.results))
        texts = texts_for_calls(shown, step.results, len(calls))
        failed = [not one.ok for one in step.results] + [False] * len(calls)
        for call, text, wrong in zip(calls, texts, failed, strict=False):
            yield ChatMessageTool(
                content=text,
                tool_call_id=call.id,
                function=call.function,
                error=ToolCallError("unknown", text) if wrong else None,
            )
        if not calls and step.observation is not None:
            yield ChatMessageUser(content=shown.content)
