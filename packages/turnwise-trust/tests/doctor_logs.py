"""Logs in the shape that frameworks write, sick and healthy, made from a seed.

Each maker writes its log into a folder and returns the words that `turnwise doctor` is given.
"""

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STEPS = 48
Curves = dict[str, np.ndarray]
Maker = Callable[[Path, int], list[str]]


def curve(random: np.random.Generator, start: float, end: float, noise: float = 0.04) -> np.ndarray:
    """A number that goes from start to end in STEPS steps, with relative noise."""
    line = np.linspace(start, end, STEPS)
    scale = noise * max(abs(start), abs(end), 1e-3)
    return line + random.normal(0, scale, STEPS)


def learned(random: np.random.Generator, start: float = 0.2, end: float = 0.7) -> np.ndarray:
    """A rate that rises as it does when a policy learns: fast at first."""
    places = 1 - np.exp(-np.linspace(0, 4, STEPS))
    return np.clip(start + (end - start) * places + random.normal(0, 0.03, STEPS), 0, 1)


def flat(random: np.random.Generator, level: float = 0.3, noise: float = 0.04) -> np.ndarray:
    return np.clip(level + random.normal(0, noise, STEPS), 0, 1)


def rows_of(curves: Curves) -> list[dict[str, float]]:
    return [
        {"step": at + 1, **{name: float(values[at]) for name, values in curves.items()}}
        for at in range(STEPS)
    ]


def write_lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


# ---- the formats


def turnwise_curves(random: np.random.Generator, rate: np.ndarray) -> Curves:
    """Numbers of a sound run of turnwise whose success is `rate`."""
    return {
        "reward/mean": rate,
        "rollout/success": rate,
        "reward/group_std": np.sqrt(np.clip(rate * (1 - rate), 1e-4, 1)) * 0.8,
        "groups/all_equal": flat(random, 0.3),
        "rollout/episodes": np.full(STEPS, 64.0),
        "rollout/ungraded": np.zeros(STEPS),
        "rollout/turns": np.full(STEPS, 3.0),
        "rollout/malformed": np.clip(curve(random, 0.1, 0.02), 0, 1),
        "rollout/length_mean": curve(random, 60, 70),
        "rollout/tool_calls": curve(random, 2, 2.4),
        "rollout/tool_success": flat(random, 0.9),
        "repetition/ngrams": flat(random, 0.1),
        "repetition/episodes": np.clip(curve(random, 0.1, 0.2), 0, 1),
        "outcome/truncated_turns": np.full(STEPS, 3.0),
        "policy/gradient_norm": np.abs(curve(random, 1.0, 0.7, 0.2)),
        "policy/weights_changed": flat(random, 0.5),
        "policy/learning_rate": np.full(STEPS, 1e-4),
        "policy/logprob_gap": np.abs(curve(random, 6e-4, 8e-4)),
        "policy/clip_fraction": flat(random, 0.05, 0.01),
        "policy/approx_kl": np.abs(curve(random, 1e-3, 1e-3)),
        "policy/entropy": np.abs(curve(random, 1.2, 0.6)),
    }


def write_turnwise(
    folder: Path,
    curves: Curves,
    validation: np.ndarray | None = None,
    reasons: Sequence[tuple[int, str]] = (),
) -> list[str]:
    run = folder / "run"
    write_lines(run / "metrics.jsonl", rows_of(curves))
    (run / "trajectories").mkdir()
    (run / "config.toml").write_text(
        'name = "prepared"\n[learning]\nlearning_rate = 0.0001\n[rollout]\nmax_turn_tokens = 64\n'
    )
    write_lines(run / "no_signal.jsonl", [{"step": step, "reason": why} for step, why in reasons])
    if validation is not None:
        every = STEPS // len(validation)
        rows = [
            {"step": every * (at + 1), "validation/success": rate, "validation/n": 64.0}
            for at, rate in enumerate(validation)
        ]
        write_lines(run / "validation.jsonl", rows)
    return [str(run)]


def trl_curves(random: np.random.Generator, rate: np.ndarray) -> Curves:
    """Numbers of a sound run of TRL 1.16's GRPOTrainer."""
    return {
        "reward": rate,
        "reward_std": np.sqrt(np.clip(rate * (1 - rate), 1e-4, 1)),
        "rewards/accuracy_reward/mean": rate,
        "rewards/accuracy_reward/std": np.sqrt(np.clip(rate * (1 - rate), 1e-4, 1)),
        "frac_reward_zero_std": flat(random, 0.35),
        "completions/mean_length": curve(random, 180, 240),
        "completions/max_length": curve(random, 500, 512, 0.01),
        "completions/clipped_ratio": flat(random, 0.06, 0.02),
        "grad_norm": np.abs(curve(random, 0.2, 0.15, 0.2)),
        "learning_rate": np.linspace(1e-6, 0, STEPS),
        "loss": random.normal(0, 0.02, STEPS),
        "entropy": np.abs(curve(random, 0.6, 0.35)),
        "clip_ratio/region_mean": np.abs(random.normal(0, 0.002, STEPS)),
        "sampling/sampling_logp_difference/mean": np.abs(curve(random, 0.01, 0.015)),
        "sampling/importance_sampling_ratio/mean": curve(random, 1, 1, 0.01),
    }


def write_trl(folder: Path, curves: Curves, rewards: bool = False) -> list[str]:
    run = folder / "out"
    run.mkdir(parents=True)
    history: list[Any] = rows_of(curves)
    history.append({"step": STEPS, "train_runtime": 12.5, "train_loss": 0.01})
    state = {"global_step": STEPS, "log_history": history, "max_steps": STEPS}
    (run / "trainer_state.json").write_text(json.dumps(state))
    for at in range(0, STEPS if rewards else 0, 8):
        level = float(curves["reward"][at])
        paid = [float(place / 8 < level) for place in range(8)]
        table = pa.table(
            {
                "step": [at + 1] * 8,
                "prompt": [[{"role": "user", "content": "What is 2 + 2?"}]] * 8,
                "completion": [[{"role": "assistant", "content": f"It is {n}."}] for n in range(8)],
                "accuracy_reward": paid,
                "advantage": [0.0] * 8,
            }
        )
        (run / "completions").mkdir(exist_ok=True)
        pq.write_table(table, run / "completions" / f"completions_{at + 1:05d}.parquet")
    return [str(run)]


def verl_curves(random: np.random.Generator, rate: np.ndarray) -> Curves:
    """Numbers of a sound run of verl 0.8."""
    return {
        "actor/entropy": np.abs(curve(random, 0.5, 0.3)),
        "actor/grad_norm": np.abs(curve(random, 0.3, 0.2, 0.2)),
        "actor/lr": np.full(STEPS, 1e-6),
        "actor/pg_loss": random.normal(0, 0.01, STEPS),
        "actor/pg_clipfrac": np.abs(random.normal(0.002, 0.0005, STEPS)),
        "actor/ppo_kl": np.abs(random.normal(5e-4, 1e-4, STEPS)),
        "critic/score/mean": rate,
        "critic/score/max": np.ones(STEPS),
        "critic/score/min": np.zeros(STEPS),
        "critic/rewards/mean": rate,
        "critic/advantages/mean": random.normal(0, 0.01, STEPS),
        "response_length/mean": curve(random, 300, 420),
        "response_length/max": np.full(STEPS, 1024.0),
        "response_length/clip_ratio": flat(random, 0.03, 0.01),
        "timing_s/step": curve(random, 60, 80),
    }


def write_console(folder: Path, curves: Curves) -> list[str]:
    lines = ["(TaskRunner pid=7) Training Progress:   0%|          | 0/48"]
    for row in rows_of(curves):
        step = row.pop("step")
        pairs = " - ".join(f"{name}:{value!r}" for name, value in row.items())
        lines.append(f"\x1b[36m(TaskRunner pid=7)\x1b[0m step:{int(step)} - {pairs}")
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    return [str(folder / "train.log")]


def write_trl_console(folder: Path, curves: Curves) -> list[str]:
    """What transformers 5 prints, in which numbers are texts."""
    rows = rows_of(curves)
    lines = [str({k: f"{v:.4g}" for k, v in row.items() if k != "step"}) for row in rows]
    lines = [f"  2%|1         | {n}/48 [00:01<00:40]{line}" for n, line in enumerate(lines)]
    (folder / "train.out").write_text("\n".join(["Loading weights", *lines]) + "\n")
    return [str(folder / "train.out")]


def write_verl_logger(folder: Path, curves: Curves) -> list[str]:
    rows = [{"step": row.pop("step"), "data": row} for row in rows_of(curves)]
    return [str(write_lines(folder / "project" / "run.jsonl", rows))]


def write_verl_rollouts(folder: Path, random: np.random.Generator, rate: np.ndarray) -> list[str]:
    for at, level in enumerate(rate):
        rows = [
            {
                "input": f"user\nQuestion {at}.{n // 8}?\nassistant\n",
                "output": f"<think>thinking {n}</think> <answer>{n}</answer>",
                "gts": "7",
                "score": float(random.random() < level),
                "step": at + 1,
            }
            for n in range(32)
        ]
        write_lines(folder / "rollouts" / f"{at + 1}.jsonl", rows)
    return [str(folder / "rollouts")]


def prime_curves(random: np.random.Generator, rate: np.ndarray) -> Curves:
    """Numbers of a sound run of prime-rl 0.8."""
    agent = "train/agg/all/agent"
    return {
        f"{agent}/reward/mean": rate,
        f"{agent}/has_error/mean": np.abs(random.normal(0.02, 0.01, STEPS)),
        f"{agent}/is_truncated/mean": np.abs(random.normal(0.05, 0.01, STEPS)),
        f"{agent}/num_output_tokens/mean": curve(random, 100, 120),
        f"{agent}/solved_none": flat(random, 0.2),
        f"{agent}/solved_all": flat(random, 0.15),
        "optim/lr": np.full(STEPS, 3e-6),
        "optim/grad_norm": np.abs(curve(random, 0.1, 0.08, 0.2)),
        "entropy/all/mean": np.abs(curve(random, 0.4, 0.3)),
        "mismatch_kl/all/mean": np.abs(random.normal(1e-3, 2e-4, STEPS)),
        "off_policy/mean": np.abs(random.normal(1.5, 0.2, STEPS)),
        "off_policy/max": np.full(STEPS, 3.0),
    }


def write_prime(folder: Path, curves: Curves) -> list[str]:
    """Each step has a line of the orchestrator and one of the trainer."""
    played = {name for name in curves if "train/" in name or "off_" in name}
    lines = [
        {"time": 1.0, "step": row["step"]} | {name: row[name] for name in own}
        for row in rows_of(curves)
        for own in (played, curves.keys() - played)
    ]
    write_lines(folder / "prime" / "metrics.jsonl", lines)
    return [str(folder / "prime")]


def write_traces(
    folder: Path, random: np.random.Generator, rate: np.ndarray, failed: float
) -> list[str]:
    rows = []
    for at, level in enumerate(rate):
        for n in range(16):
            lost = random.random() < failed
            reward = {"correct": {"score": float(random.random() < level), "weight": 1.0}}
            trace = {
                "version": 3,
                "task": {"type": "Task", "data": {}, "key": f"t{at}.{n // 8}"},
                "rewards": {"correct": None} if lost else reward,
                "metrics": {"num_turns": 1.0},
                "nodes": [
                    {"message": {"role": "user", "content": "Reverse abc."}},
                    {"sampled": True, "message": {"role": "assistant", "content": f"cba {n}"}},
                ],
                "calls": [{"finish_reason": "stop"}],
                "ok": not lost,
                "num_output_tokens": 12,
            }
            rows.append(
                {
                    "id": f"e{at}.{n}",
                    "env": {"id": "reverse-text"},
                    "task": trace["task"],
                    "group": {"id": f"g{at}.{n // 8}"},
                    "run": {"type": "train", "id": "r", "work": {"type": "train", "step": at}},
                    "ok": not lost,
                    "traces": [] if lost and n % 2 else [trace],
                    "errors": [{"type": "SandboxError"}] if lost else [],
                }
            )
    return [str(write_lines(folder / "traces.jsonl", rows))]


def write_csv(folder: Path, curves: Curves) -> list[str]:
    """As W&B's pages export it, with bounds beside each number."""
    file = folder / "wandb_export.csv"
    with file.open("w", newline="") as opened:
        names = [f"run-1 - {name}" for name in curves]
        header = ["Step", *(side for name in names for side in (name, f"{name}__MIN"))]
        writer = csv.writer(opened)
        writer.writerow(header)
        for row in rows_of(curves):
            step = int(row.pop("step"))
            writer.writerow([step, *(value for v in row.values() for value in (v, v))])
    return [str(file)]


def write_wandb_lines(folder: Path, curves: Curves) -> list[str]:
    rows = [
        {"_step": 3 * int(row["step"]), "train/global_step": row.pop("step"), **row}
        for row in rows_of({f"train/{name}": values for name, values in curves.items()})
    ]
    return [str(write_lines(folder / "history.jsonl", rows))]


def write_plain(
    folder: Path, random: np.random.Generator, rate: np.ndarray, calls: np.ndarray
) -> list[str]:
    rows = [
        {
            "global_step": at,
            "prompt_id": f"{at}.{n // 8}",
            "result": {"score": float(random.random() < rate[at])},
            "n_calls": int(random.poisson(calls[at])),
            "answer": f"The answer is {n}.",
        }
        for at in range(STEPS)
        for n in range(32)
    ]
    file = write_lines(folder / "mine.jsonl", rows)
    mapping = "step=global_step group=prompt_id reward=result.score tool_calls=n_calls text=answer"
    return [str(file), *mapping.split()]


def write_nemo_gym(folder: Path, random: np.random.Generator, rate: float) -> list[str]:
    rows = [
        {
            "_ng_task_index": task,
            "_ng_rollout_index": n,
            "responses_create_params": {"input": [{"role": "user", "content": "H2O?"}]},
            "response": {
                "output": [
                    {"type": "function_call", "name": "look_up", "arguments": "{}"},
                    {"type": "message", "content": [{"type": "output_text", "text": "Water."}]},
                ],
                "usage": {"input_tokens": 20, "output_tokens": 30},
            },
            "reward": float(random.random() < rate),
        }
        for task in range(40)
        for n in range(8)
    ]
    return [str(write_lines(folder / "rollouts.jsonl", rows))]


def write_inspect(folder: Path, random: np.random.Generator, rate: float, cut: float) -> list[str]:
    samples = {}
    for n in range(80):
        limited = random.random() < cut
        right = random.random() < rate and not limited
        samples[f"samples/{n // 4}_epoch_{n % 4 + 1}.json"] = {
            "id": n // 4,
            "epoch": n % 4 + 1,
            "messages": [
                {"role": "user", "content": "Book a flight."},
                {"role": "assistant", "content": "I book it.", "tool_calls": [{"id": "1"}]},
                {"role": "tool", "content": "booked"},
            ],
            "scores": {"verifier": {"value": "C" if right else "I"}},
            "limit": {"type": "token", "limit": 512} if limited else None,
        }
    file = folder / "log.eval"
    write_zstandard(file, {"header.json": {"version": 2, "eval": {"task": "prepared"}}, **samples})
    return [str(file)]


def write_zstandard(file: Path, contents: Mapping[str, Any]) -> None:
    """A zip of Inspect's, whose entries are compressed by a method that zipfile does not write."""
    with ZipFile(file, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, pa.compress(json.dumps(content).encode(), "zstd", asbytes=True))
    packed = bytearray(file.read_bytes())
    for signature, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = packed.find(signature)
        while at >= 0:
            packed[at + place : at + place + 2] = (93).to_bytes(2, "little")
            at = packed.find(signature, at + 4)
    file.write_bytes(packed)


# ---- sick and healthy


def _log(
    write: Callable[..., list[str]],
    curves: Callable[..., Curves],
    rate: Callable[[np.random.Generator], np.ndarray] = flat,
    own: Callable[[np.random.Generator], Curves] = lambda random: {},
    **options: Any,
) -> Maker:
    """A sound run whose outcome is `rate`, but for its `own` numbers."""

    def make(folder: Path, seed: int) -> list[str]:
        random = np.random.default_rng(seed)
        return write(folder, curves(random, rate(random)) | own(random), **options)

    return make


def _episodes(write: Callable[..., list[str]], *given: Any) -> Maker:
    return lambda folder, seed: write(folder, np.random.default_rng(seed), *given)


_turnwise = partial(_log, write_turnwise, turnwise_curves)
_trl = partial(_log, write_trl, trl_curves)
ZERO, ONE, LEVEL = np.zeros(STEPS), np.ones(STEPS), np.full(STEPS, 0.3)
NOTHING = {
    **dict.fromkeys(("reward", "reward_std", "grad_norm", "loss"), ZERO),
    "rewards/accuracy_reward/mean": ZERO,
    "frac_reward_zero_std": ONE,
}
"""Numbers of a run of TRL in which no answer is paid."""


def _none(random: np.random.Generator) -> np.ndarray:
    return ZERO


def _rising(start: float, end: float) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda random: learned(random, start, end)


def _collapse(random: np.random.Generator) -> np.ndarray:
    up, down = np.linspace(0.2, 0.5, STEPS // 3), np.linspace(0.5, 0.15, 2 * STEPS // 3)
    return np.clip(np.concatenate([up, down]) + random.normal(0, 0.02, STEPS), 0, 1)


def _solved_early(random: np.random.Generator) -> np.ndarray:
    return np.clip(1 - np.exp(-np.linspace(0.1, 12, STEPS)), 0, 1)


def _said(why: str) -> list[tuple[int, str]]:
    return [(step + 1, why) for step in range(STEPS)]


def _form_alone(random: np.random.Generator) -> Curves:
    form = learned(random, 0.1, 0.95)
    return {"reward/mean": 0.1 + 0.5 * form, "reward/parts/format": form}


def _noisy_verifier(folder: Path, random: np.random.Generator) -> list[str]:
    """All steps in one file."""
    rows = [
        {
            "input": f"Question {at}.{n // 8}?",
            "output": f"It is {random.integers(3)}.",
            "gts": "1",
            "score": float(random.random() < 0.4),
            "step": at + 1,
        }
        for at in range(STEPS)
        for n in range(16)
    ]
    return [str(write_lines(folder / "rollouts.jsonl", rows))]


FEW = np.array([0.55, 0.5, 0.3, 0.25])
DRAWN = np.random.default_rng(0)

SICK: dict[str, tuple[str, Maker]] = {
    "turnwise, no episode succeeds": (
        "dead groups",
        _turnwise(
            _none,
            lambda random: {"groups/all_equal": ONE, "policy/gradient_norm": ZERO},
            reasons=_said("no episode is a success, so none is better than another"),
        ),
    ),
    "turnwise, Echo Trap": (
        "Echo Trap",
        _turnwise(
            _collapse,
            lambda random: {
                "reward/group_std": np.abs(curve(random, 0.4, 0.03)),
                "repetition/ngrams": np.clip(curve(random, 0.1, 0.8), 0, 1),
            },
        ),
    ),
    "turnwise, form alone is learned": (
        "format gaming",
        _turnwise(lambda random: flat(random, 0.1, 0.02), _form_alone),
    ),
    "turnwise, held-out success falls": (
        "held-out success",
        _turnwise(
            _rising(0.3, 0.9), validation=np.linspace(0.5, 0.2, 12) + DRAWN.normal(0, 0.02, 12)
        ),
    ),
    "turnwise, held-out success falls over four evaluations": (
        "held-out success",
        _turnwise(learned, validation=FEW),
    ),
    "turnwise, a verifier that is cheated": (
        "reward without success",
        _turnwise(
            _rising(0.4, 0.9), lambda random: {"reward/parts/exact_match": flat(random, 0.02, 0.01)}
        ),
    ),
    "turnwise, turns cut off": (
        "truncated answers",
        _turnwise(
            _none,
            lambda random: {
                "rollout/malformed": 0.97 * ONE,
                "groups/all_equal": ONE,
                "rollout/length_mean": 190 * ONE,
            },
        ),
    ),
    "turnwise, updates lost in rounding": (
        "learning signal",
        _turnwise(reasons=_said("the weights that sample are what they were: raise the rate")),
    ),
    "turnwise, unreadable turns": (
        "malformed turns",
        _turnwise(
            lambda random: flat(random, 0.02, 0.01),
            lambda random: {"rollout/malformed": flat(random, 0.96, 0.01)},
        ),
    ),
    "TRL, learning rate 0": ("learning rate", _trl(own=lambda random: {"learning_rate": ZERO})),
    "TRL, constant reward": ("dead groups", _trl(own=lambda random: NOTHING, rewards=True)),
    "TRL, every answer cut off": (
        "truncated answers",
        _trl(own=lambda random: {**NOTHING, "completions/clipped_ratio": 0.98 * ONE}),
    ),
    "TRL, gradient NaN": (
        "numbers that are not finite",
        _trl(own=lambda random: {"grad_norm": np.where(np.arange(STEPS) < 20, 0.2, math.nan)}),
    ),
    "TRL, engine of other weights": (
        "engine and learner",
        _trl(
            own=lambda random: {
                "sampling/sampling_logp_difference/mean": np.abs(curve(random, 0.9, 1.1)),
                "sampling/importance_sampling_ratio/mean": np.abs(curve(random, 0.02, 0.05)),
            }
        ),
    ),
    "TRL console, learning rate too low": (
        "learning rate",
        _log(
            *(write_trl_console, trl_curves),
            own=lambda random: {
                "learning_rate": 1e-10 * ONE,
                "entropy": curve(random, 0.5, 0.5, 0.01),
            },
        ),
    ),
    "verl rollouts, none succeeds": ("dead groups", _episodes(write_verl_rollouts, 0.002 * ONE)),
    "verl rollouts, a verifier that is noise": ("reward noise", _episodes(_noisy_verifier)),
    "verl console, entropy collapse": (
        "entropy collapse",
        _log(
            *(write_console, verl_curves, _collapse),
            lambda random: {"actor/entropy": 0.6 * np.exp(-np.linspace(0, 4, STEPS))},
        ),
    ),
    "verl logger, length explosion": (
        "length explosion",
        _log(
            *(write_verl_logger, verl_curves),
            own=lambda random: {
                "response_length/mean": curve(random, 250, 900),
                "response_length/clip_ratio": np.clip(curve(random, 0.02, 0.6), 0, 1),
            },
        ),
    ),
    "prime-rl, old samples": (
        "staleness",
        _log(
            *(write_prime, prime_curves),
            own=lambda random: {"off_policy/mean": np.abs(curve(random, 9, 14))},
        ),
    ),
    "verifiers, episodes that fail": (
        "ungraded episodes",
        _episodes(write_traces, 0.4 * ONE, 0.7),
    ),
    "W&B table, every token clipped": (
        "stopped tokens",
        _log(
            *(write_csv, verl_curves),
            own=lambda random: {"actor/pg_clipfrac": flat(random, 0.92, 0.02)},
        ),
    ),
    "W&B history, far from the reference": (
        "divergence from the reference",
        _log(
            *(write_wandb_lines, trl_curves, _collapse),
            lambda random: {"kl": np.linspace(0.01, 9, STEPS) ** 1.5},
        ),
    ),
    "plain, tools given up": (
        "tool calls vanish",
        _episodes(write_plain, LEVEL, np.geomspace(3, 0.02, STEPS)),
    ),
    "plain, calls without use": (
        "tool-call hacking",
        _episodes(write_plain, LEVEL, np.linspace(1, 7, STEPS)),
    ),
    "NeMo Gym, all solved": ("dead groups", _episodes(write_nemo_gym, 1.0)),
    "Inspect, token limit": ("truncated answers", _episodes(write_inspect, 0.5, 0.95)),
}
HEALTHY: dict[str, Maker] = {
    "turnwise": _turnwise(learned),
    "turnwise, validated": _turnwise(learned, validation=learned(DRAWN)[::4]),
    "turnwise, a part that is there from the beginning": _turnwise(
        learned, lambda random: {"reward/parts/tests_passed": ONE}
    ),
    "turnwise, four evaluations": _turnwise(learned, validation=0.4 + DRAWN.normal(0, 0.06, 4)),
    "TRL": _trl(learned),
    "TRL, solved early": _trl(
        _solved_early,
        lambda random: {
            "frac_reward_zero_std": _solved_early(random),
            "entropy": 1.2 * (1 - _solved_early(random)) + 0.01,
            "completions/clipped_ratio": 0.9 * ONE,
        },
        rewards=True,
    ),
    "TRL, flat but sound": _trl(lambda random: flat(random, 0.2), rewards=True),
    "verl console, longer and better": _log(
        *(write_console, verl_curves, _rising(0.1, 0.6)),
        lambda random: {"response_length/mean": curve(random, 200, 900)},
    ),
    "verl rollouts": _episodes(write_verl_rollouts, np.linspace(0.2, 0.6, STEPS)),
    "prime-rl": _log(write_prime, prime_curves, learned),
    "verifiers": _episodes(write_traces, np.linspace(0.3, 0.6, STEPS), 0.04),
    "W&B table, slow": _log(write_csv, verl_curves, _rising(0.3, 0.4)),
    "W&B history": _log(write_wandb_lines, trl_curves, learned),
    "plain": _episodes(write_plain, np.linspace(0.2, 0.5, STEPS), np.linspace(1.5, 2.5, STEPS)),
    "NeMo Gym": _episodes(write_nemo_gym, 0.5),
    "Inspect": _episodes(write_inspect, 0.6, 0.1),
}
