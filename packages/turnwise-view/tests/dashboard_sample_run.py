"""A small run folder with everything that a view can show, and text that would do harm as markup.

Rows are written as the storage writes them; nothing is trained.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fakes import byte_tokenizer
from turnwise.config import load_recipe
from turnwise.environments.registry import environment_of
from turnwise.storage.audits import Finding, write_audit
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import SCHEMA
from turnwise.times import Doing, EpisodeTimes, Span
from turnwise.tokens import Source
from turnwise.types import Group, Task, Trajectory

HOSTILE = (
    "<script>window.harmed = 1</script><style>body { display: none }</style>"
    '<img src="http://out.test/i.png" onerror="window.harmed = 2">'
    '<svg onload="window.harmed = 3"><a href="javascript:window.harmed = 4">go</a></svg>'
    "\u202e\u0000&lt;b&gt;"
)
LONG_LINE = 10_000_000
"""Characters of the longest line."""
LONG_EPISODE = 30_000
"""Tokens of the longest episode."""
OUTCOMES = ["success", "failure", "failure", "agent_parse_error"]


def write_run(folder: Path, *, seed: int = 0, hostile: bool = True) -> Path:
    """A run of three steps and an evaluation. Rows of its last step: 0 to 3 are a group with a
    signal, 4 and 5 a group without one, 6 is ungraded, 7 has a long line, 8 many tokens."""
    run = RunFolder.new(folder)
    run.begin(load_recipe("demo", [f"seed={seed}", "train.steps=3", "evaluation.tasks=4"]))
    run.write_tokenizer(byte_tokenizer())
    changes = {"cluster.learners": {"before": 1, "now": 2}}
    run.append("moves.jsonl", {"step": 2, "stage": "reinforcement", "changes": changes})
    for step in (1, 2, 3):
        run.append("metrics.jsonl", _metrics(step, seed))
        run.append("timing.jsonl", {"step": step, "seconds/step": 1.5, "seconds/rollout": 1.0})
        rows = [_short(0, episode, outcome) for episode, outcome in enumerate(OUTCOMES)]
        rewrite(folder, rows, f"step-{step:06d}")
        run.write_timeline(step, [_timed(step)], _phases(step))
    alike = [_short(1, episode, "failure") for episode in (0, 1)]
    rows += [{**row, "advantage": [0.0] * len(row["ids"])} for row in alike]
    rows.append({**_short(2, 0, "infrastructure_step"), "success": None, "reward": None})
    if hostile:
        rows.append(_row(3, 0, "failure", HOSTILE, "x" * LONG_LINE))
        rows.append(_row(4, 0, "failure", "many tokens", "y" * (LONG_EPISODE - 200)))
    rewrite(folder, rows, "step-000003")
    rewrite(folder, [_short(9, 0, "success"), _short(8, 0, "failure")], "evaluation-trained")
    finding = Finding("The engine samples what the model says", 1e-6, 0, 2e-6, 1e-3, True, "nats")
    write_audit(run, "before_run", "Before the run: what was checked", [finding])
    run.write_evaluation("trained", {"success": 0.5, "low": 0.1, "high": 0.9, "n": 2, "step": 3})
    return folder


def finish(folder: Path) -> Path:
    """Write the report of a run, which says that it is finished."""
    report = {"name": "demo", "seed": 0, "seconds": 60.0, "comparisons": []}
    (folder / "report.json").write_text(json.dumps(report))
    (folder / "report.md").write_text(
        "# demo\n\n#1 is no heading\n\n| a | b |\n|---|---|\n| 1 | **2** |\n"
    )
    return folder


def with_a_task_of_the_environment(folder: Path) -> Path:
    """The run, its first step's episodes of a task that can be played."""
    task = environment_of(RunFolder.open(folder).recipe()).tasks("heldout")[0].id
    rows = rows_of(folder, "step-000001")
    rewrite(folder, [{**row, "task": task} for row in rows], "step-000001")
    return folder


def rows_of(folder: Path, name: str = "step-000003") -> list[dict[str, Any]]:
    rows = pq.read_table(folder / "trajectories" / f"{name}.parquet").to_pylist()
    return list(rows)


def rewrite(
    folder: Path,
    rows: Sequence[dict[str, Any]],
    name: str = "step-000003",
    together: int | None = None,
) -> None:
    """Write a file of trajectories, so many rows in a group."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    file = folder / "trajectories" / f"{name}.parquet"
    pq.write_table(table, file, together, compression="zstd")


def _timed(step: int) -> Group:
    """The times of a step's first group, on two workers."""
    parts = (Span(Doing.SAMPLING, 0.0, 0.2), Span(Doing.TOOLS, 0.2, 0.5))
    times = [EpisodeTimes(step + n / 9, 0.6, parts, f"worker {n % 2}") for n in range(4)]
    episodes = [
        Trajectory(Task("task-0", "?"), "train/2/task-0", n, 0, times=one)
        for n, one in enumerate(times)
    ]
    return Group("train/2/task-0", tuple(episodes))


def _phases(step: int) -> list[tuple[str, float, float]]:
    return [("waiting", step, step + 0.94), ("update", step + 0.94, step + 1.0)]


def _metrics(step: int, seed: int) -> dict[str, Any]:
    return {
        "step": step,
        "reward/mean": 0.1 * step + 0.05 * seed,
        "reward/group_std": 0.3 / step,
        "groups/all_equal": 0.25,
        "policy/entropy": 0.5 / step,
        "policy/gradient_norm": math.sqrt(step),
        "policy/logprob_gap": math.nan if step == 1 else 0.001,
        "repetition/ngrams": 0.1 * step,
    }


def _short(task: int, episode: int, outcome: str) -> dict[str, Any]:
    return _row(task, episode, outcome, f"capital of {episode}", f"It is Paris, episode {episode}.")


def _row(task: int, episode: int, outcome: str, said: str, observed: str) -> dict[str, Any]:
    """A row of two turns: a call with its observation, and an answer."""
    long = len(observed) == LONG_LINE
    texts = [
        (f"Question {task}?\n", Source.USER, 0),
        (said, Source.MODEL, 0),
        ("\n[" + ("a long line" if long else observed) + "]\n", Source.TOOL, 0),
        ("Rome", Source.MODEL, 1),
    ]
    call = {"name": "lookup", "arguments": {"country": said}, "id": "0.0"}
    success = outcome == "success"
    return {
        "task": f"task-{task}",
        "prompt": f"Question {task}?" + (f" {HOSTILE}" if long else ""),
        "group": f"train/2/task-{task}",
        "episode": episode,
        "parent": 1 if episode == 3 else None,
        "first_turn": 1 if episode == 3 else 0,
        "seed": episode,
        "outcome": outcome,
        "reward": float(success),
        "penalty": 0.0,
        "parts": json.dumps({"exact_match": float(success)}),
        "turn_parts": "{}",
        "turn_rewards": [],
        "success": success,
        "detail": f"answered {said!r}",
        "answer": said,
        "problem": "",
        "turns": 2,
        "roles": ["", ""],
        "tool_calls": 1,
        "actions": json.dumps([_action(said, [call]), _action("Rome", [])]),
        "steps": json.dumps([_step(observed, call), _step(None, None)]),
        **_tokens(texts, 1.0 if success else -1.0),
        "images": [],
    }


def _action(text: str, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    answer = None if calls else text
    said = {"text": text, "thought": text, "calls": calls, "answer": answer}
    return {**said, "error": None, "summary": False}


def _step(observed: str | None, call: dict[str, Any] | None) -> dict[str, Any]:
    shown = None if observed is None else [observed, int(Source.TOOL)]
    results = [] if call is None else [[call, observed, True]]
    ended = [observed is None, False, False]
    return {"observation": shown, "results": results, "ended": ended, "reward": None}


def _tokens(texts: Sequence[tuple[str, Source, int]], advantage: float) -> dict[str, Any]:
    """Tokens of the texts; those that the policy sampled have log-probabilities and a credit."""
    encode = byte_tokenizer().encode
    pieces = [(one, source, turn) for text, source, turn in texts for one in encode(text)]
    sampled = [source == Source.MODEL for _, source, _ in pieces]
    surprise = [-0.01 * (index % 90) for index in range(len(pieces))]
    return {
        "ids": [one for one, _, _ in pieces],
        "source": [int(source) for _, source, _ in pieces],
        "turn": [turn for _, _, turn in pieces],
        "version": [2 if one else -1 for one in sampled],
        "logprob": [s if one else math.nan for s, one in zip(surprise, sampled, strict=True)],
        "trained_logprob": [
            1.01 * s if one else math.nan for s, one in zip(surprise, sampled, strict=True)
        ],
        "entropy": [-s if one else math.nan for s, one in zip(surprise, sampled, strict=True)],
        "loss_weight": [1 / sum(sampled) if one else math.nan for one in sampled],
        "advantage": [advantage if one else 0.0 for one in sampled],
        "value": [],
        "contexts": [[0, 0]],
    }
