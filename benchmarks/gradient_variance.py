"""How noisy the gradient is at 2, 5, 10 and 20 turns, by estimator, where every value is known.

    .venv/bin/python benchmarks/gradient_variance.py

The agent walks between two rooms; in each it chooses between two doors, one of which pays. A
tabular policy has logits of its own for every turn (as a language model's turns differ), so values
and the exact gradient come from dynamic programming. All estimators see the same trajectories;
outcome estimators see the sum of rewards, at the end alone. Noise is the trace of the estimate's
covariance over the squared norm of the exact gradient; bias is the angle between the mean estimate
and the exact gradient. Writes gradient_variance.json, .md and .png.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from turnwise.algorithms.estimators import EstimatorInput
from turnwise.algorithms.parts import PARTS

TURNS = (2, 5, 10, 20)
GROUP, BATCHES, REROLLS = 8, 600, 8
LOGITS = np.array([[0.2, -0.3], [0.4, 0.1]])
PAYING = np.array([0, 1])
STRAY = 0.2
"""Probability to come out in the other room than the door leads to."""

Walk = dict[str, Any]


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/gradient_variance"))
    parser.add_argument("--batches", type=int, default=BATCHES)
    arguments = parser.parse_args()
    rows = [row for turns in TURNS for row in measure(turns, arguments.batches)]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "gradient_variance.json").write_text(json.dumps(rows, indent=1) + "\n")
    table = markdown(rows)
    (arguments.out / "gradient_variance.md").write_text(table)
    draw(rows, arguments.out / "gradient_variance.png")
    print(table)


def policy() -> np.ndarray:
    """float64[room, door]"""
    weights = np.exp(LOGITS)
    return weights / weights.sum(axis=1, keepdims=True)


def true_values(turns: int) -> np.ndarray:
    """float64[turns + 1, room]: what is still to come, before each turn."""
    values = np.zeros((turns + 1, 2))
    for turn in range(turns - 1, -1, -1):
        for room in range(2):
            values[turn, room] = sum(
                policy()[room, door] * (reward(room, door, turns) + ahead(values, turn, door))
                for door in range(2)
            )
    return values


def ahead(values: np.ndarray, turn: int, door: int) -> float:
    """The value after a door, which leads to the room of its number but for STRAY."""
    return float((1 - STRAY) * values[turn + 1, door] + STRAY * values[turn + 1, 1 - door])


def reward(room: int, door: int, turns: int) -> float:
    """A perfect walk pays 1 in all."""
    return float(door == PAYING[room]) / turns


def exact_gradient(turns: int) -> np.ndarray:
    """float64[4 turns] of the expected sum of rewards, by the policy gradient theorem."""
    values, gradient = true_values(turns), np.zeros((turns, 2, 2))
    visits = np.array([0.5, 0.5])
    for turn in range(turns):
        following = np.zeros(2)
        for room in range(2):
            for door in range(2):
                share = visits[room] * policy()[room, door]
                q = reward(room, door, turns) + ahead(values, turn, door)
                gradient[turn] += share * q * score(room, door)
                following[door] += share * (1 - STRAY)
                following[1 - door] += share * STRAY
        visits = following
    return gradient.ravel()


def score(room: int, door: int) -> np.ndarray:
    """Gradient of the log-probability of a choice."""
    gradient = np.zeros((2, 2))
    gradient[room] = -policy()[room]
    gradient[room, door] += 1
    return gradient


def walk(stream: np.random.Generator, turns: int, start: int = 0, room: int | None = None) -> Walk:
    """Rooms, doors and rewards from turn `start` on."""
    here = int(stream.integers(2)) if room is None else room
    rooms, doors, rewards = [], [], []
    for _ in range(start, turns):
        door = int(stream.random() < policy()[here, 1])
        rooms.append(here)
        doors.append(door)
        rewards.append(reward(here, door, turns))
        here = door if stream.random() >= STRAY else 1 - door
    return {"rooms": rooms, "doors": doors, "rewards": rewards, "last": here}


def episode(made: Walk, values: np.ndarray, outcome: bool) -> EstimatorInput:
    """One token a turn; as an outcome alone, or with the rewards where they come."""
    turns = len(made["rooms"])
    return EstimatorInput(
        shaped_reward=sum(made["rewards"]) if outcome else 0.0,
        turn=np.arange(turns, dtype=np.int32),
        mask=np.ones(turns, np.bool_),
        turn_rewards=None if outcome else np.array(made["rewards"]),
        values=np.array([values[turn, room] for turn, room in enumerate(made["rooms"])]),
        states=[f"{turn} {room}" for turn, room in enumerate(made["rooms"])],
    )


def counterfactual(stream: np.random.Generator, made: Walk, turns: int) -> np.ndarray:
    """r_k + V(k+1) - V(k), each value the mean of REROLLS walks from there."""
    places = [*made["rooms"], made["last"]]
    found = [
        np.mean([sum(walk(stream, turns, turn, room)["rewards"]) for _ in range(REROLLS)])
        for turn, room in enumerate(places)
    ]
    return np.array(made["rewards"]) + np.diff(found)


VARIANTS: dict[str, tuple[str, bool, dict[str, float]]] = {
    "outcome (rloo)": ("rloo", True, {}),
    "outcome (grpo)": ("grpo", True, {}),
    "turn rewards (turn_rloo)": ("turn_rloo", False, {"discount": 1.0}),
    "gigpo": ("gigpo", False, {"discount": 1.0, "step_weight": 1.0, "divide": 1}),
    "critic, decay 1": ("token_gae", False, {"discount": 1.0, "decay": 1.0}),
    "critic, decay 0.95": ("token_gae", False, {"discount": 1.0, "decay": 0.95}),
    "critic, decay 0": ("token_gae", False, {"discount": 1.0, "decay": 0.0}),
}
COUNTERFACTUAL = f"counterfactual, {REROLLS} re-rolls"


def measure(turns: int, batches: int) -> list[dict[str, Any]]:
    """A row for each estimator."""
    values, exact = true_values(turns), exact_gradient(turns)
    stream = np.random.default_rng(turns)
    estimates: dict[str, list[np.ndarray]] = {name: [] for name in (*VARIANTS, COUNTERFACTUAL)}
    for _ in range(batches):
        walks = [walk(stream, turns) for _ in range(GROUP)]
        for name, (estimator, outcome, numbers) in VARIANTS.items():
            group = [episode(made, values, outcome) for made in walks]
            credits = PARTS["estimator"].get(estimator).function([group], **numbers)[0]
            estimates[name].append(gradient(walks, [credit.advantages for credit in credits]))
        advantages = [counterfactual(stream, made, turns) for made in walks]
        estimates[COUNTERFACTUAL].append(gradient(walks, advantages))
    return [row(name, turns, np.array(found), exact) for name, found in estimates.items()]


def gradient(walks: Sequence[Walk], advantages: Sequence[np.ndarray]) -> np.ndarray:
    """float64[4 turns]: the mean over the group of sum_k A_k grad log pi_k."""
    total = np.zeros((len(walks[0]["rooms"]), 2, 2))
    for made, numbers in zip(walks, advantages, strict=True):
        choices = zip(made["rooms"], made["doors"], numbers, strict=True)
        for turn, (room, door, advantage) in enumerate(choices):
            total[turn] += advantage * score(room, door) / GROUP
    return total.ravel()


def row(name: str, turns: int, found: np.ndarray, exact: np.ndarray) -> dict[str, Any]:
    """Noise and bias, scale free: the estimate is scaled so that its mean is as long as `exact`."""
    mean = found.mean(axis=0)
    scale = np.linalg.norm(exact) / np.linalg.norm(mean)
    noise = float(np.trace(np.cov(found.T)) * scale**2 / (exact @ exact))
    cosine = float(mean @ exact / np.linalg.norm(mean) / np.linalg.norm(exact))
    return {
        "estimator": name,
        "turns": turns,
        "noise": noise,
        "angle": float(np.degrees(np.arccos(min(cosine, 1.0)))),
        "angle_of_chance": float(np.degrees(np.arctan(np.sqrt(noise / len(found))))),
        "walks": GROUP * (1 + (turns + 1) * REROLLS) if name == COUNTERFACTUAL else GROUP,
    }


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Noise by turns; the angle at the most turns, and what chance alone makes of it."""
    head = "| estimator | " + " | ".join(f"{turns} turns" for turns in TURNS)
    head += f" | angle at {TURNS[-1]} (by chance) | walks per gradient at {TURNS[-1]} |\n"
    head += "|---|" + "---|" * (len(TURNS) + 2) + "\n"
    lines = []
    for name in dict.fromkeys(entry["estimator"] for entry in rows):
        own = [entry for entry in rows if entry["estimator"] == name]
        noise = " | ".join(f"{entry['noise']:.2f}" for entry in own)
        last = own[-1]
        angle = f"{last['angle']:.1f}° ({last['angle_of_chance']:.1f}°)"
        lines.append(f"| {name} | {noise} | {angle} | {last['walks']} |\n")
    return head + "".join(lines)


def draw(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Noise over turns, both logarithmic."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for name in dict.fromkeys(entry["estimator"] for entry in rows):
        own = [entry for entry in rows if entry["estimator"] == name]
        axes.plot(
            [entry["turns"] for entry in own], [entry["noise"] for entry in own], "o-", label=name
        )
    axes.set(xscale="log", yscale="log", xlabel="turns", ylabel="variance / squared gradient")
    axes.minorticks_off()
    axes.set_xticks(TURNS, [str(turns) for turns in TURNS])
    axes.set_yticks(levels := (0.2, 0.5, 1, 2, 5), [str(level) for level in levels])
    axes.set_title(f"noise of the gradient of {GROUP} trajectories")
    axes.legend()
    figure.savefig(file, dpi=130)


if __name__ == "__main__":
    main()
