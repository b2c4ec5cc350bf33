"""Episodes of verifiers 0.4 and prime-rl 0.8, and results of earlier verifiers.

`traces.jsonl` has a line for each episode (`v1/episode.py`, `v1/trace.py`): task, group, run.work
with the step, ok, errors, and traces with named rewards (score, weight), metrics, calls with their
finish reason, and nodes with messages. prime-rl writes them to
`rollouts/step_N/{train,eval}/{all,effective}/`; `all` has what failed too, and is read. Earlier
verifiers wrote `results.jsonl`: example_id, prompt, completion, reward, and each reward function.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from turnwise_trust.doctor.log import Event, Measured, Remark, Rollout
from turnwise_trust.doctor.readers.history import read_history
from turnwise_trust.doctor.readers.lines import (
    Row,
    mapping,
    number,
    numbers,
    objects,
    rows,
    said,
    whole,
)

NO_PARTS = (
    *("example_id", "reward", "input_tokens", "output_tokens", "generation_ms", "scoring_ms"),
    *("total_ms", "is_completed", "is_truncated", "task", "num_turns", "step"),
)
LIMITS = (
    *("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens"),
    "compaction_failed",
)
"""Ends of a trace that cut it off."""


def step_folders(folder: Path) -> list[Path]:
    """prime-rl's folders of steps, in order."""
    found = [one for one in (folder / "rollouts").glob("step_*") if one.name[5:].isdecimal()]
    return sorted(found, key=lambda one: int(one.name[5:]))


def read_run(folder: Path) -> Iterator[Event]:
    """A run's folder of prime-rl: its numbers, and the episodes of training."""
    if (file := folder / "metrics.jsonl").is_file():
        yield from read_history(file)
    for step in step_folders(folder):
        for kind in ("train", "eval"):
            file = step / kind / "all" / "traces.jsonl"
            if file.is_file():
                yield from read_traces(file, int(step.name[5:]))


def read_traces(file: Path, step: int | None = None) -> Iterator[Event]:
    """Each agent's trace of each episode; held-out ones as the mean reward alone."""
    for row in objects(file):
        if isinstance(row, Remark):
            yield row
            continue
        work = mapping(mapping(row.get("run")).get("work"))
        at = (whole(work.get("step")) or 0) if step is None else step
        found = [_rollout(row, trace, at) for trace in rows(row.get("traces"))]
        if work.get("type") != "eval":
            yield from found or [Rollout(at, _group(row))]
        else:
            rewards = [one.reward for one in found if one.reward is not None]
            yield from (Measured(at, {"validation/reward": reward}) for reward in rewards)


def read_results(file: Path) -> Iterator[Event]:
    """The rows of `results.jsonl`."""
    for row in objects(file):
        yield row if isinstance(row, Remark) else _result(row)


def _rollout(episode: Row, trace: Row, step: int) -> Rollout:
    rewards = {
        name: (number(one.get("score")), number(one.get("weight", 1.0)) or 0.0)
        for name, one in mapping(trace.get("rewards")).items()
        if isinstance(one, Mapping)
    }
    graded = {name: pair[0] * pair[1] for name, pair in rewards.items() if pair[0] is not None}
    calls = rows(trace.get("calls"))
    sampled = [one for one in rows(trace.get("nodes")) if one.get("sampled")]
    messages = [mapping(one.get("message")) for one in sampled]
    return Rollout(
        step=step,
        group=_group(episode),
        # Where scoring failed, some of the rewards may be there all the same.
        reward=None if trace.get("ok") is False or not graded else sum(graded.values()),
        parts={**graded, **numbers(trace.get("metrics"))},
        text="\n".join(said(one.get("content")) for one in messages),
        length=whole(trace.get("num_output_tokens")),
        truncated=_is_truncated(trace, calls) if calls else None,
        tool_calls=sum(len(rows(one.get("tool_calls"))) for one in messages) if messages else None,
    )


def _is_truncated(trace: Row, calls: Sequence[Row]) -> bool:
    """Whether a trace was cut off, as `Trace.is_truncated` has it: after a call that was cut off an
    agent may go on."""
    last = next((one for one in reversed(calls) if not one.get("error")), {})
    return trace.get("stop_condition") in LIMITS or last.get("finish_reason") == "length"


def _result(row: Row) -> Rollout:
    parts = numbers({k: v for k, v in row.items() if k not in NO_PARTS})
    parts |= numbers(row.get("metrics"))
    truncated = row.get("is_truncated")
    return Rollout(
        step=whole(row.get("step")),
        group=str(row.get("example_id", said(row.get("prompt")))),
        reward=number(row.get("reward")),
        parts=parts,
        text=said(row.get("completion")),
        truncated=truncated if isinstance(truncated, bool) else None,
    )


def _group(row: Row) -> str | None:
    task = mapping(row.get("task"))
    name = mapping(row.get("group")).get("id") or task.get("key") or task.get("hash")
    return None if name is None else str(name)
