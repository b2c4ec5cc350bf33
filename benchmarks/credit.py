"""Bias, noise and learning of every estimator on tasks whose deciding turns are known.

    python -m benchmarks.credit                                 # all tasks at 2, 6 and 12 turns
    python -m benchmarks.credit --method mine.py:function --only mine.py:function rloo

A method is an estimator as a recipe takes it (docs/start/own_algorithm.md), called as training
calls it: a function of a batch, which is a list of groups (one for each prompt) of SIZE
`EstimatorInput`s, that gives a list of groups of `Credit(float64[n])`, an advantage for each of an
episode's n tokens. An input of n tokens and K turns has

- `turn` int[n] and `mask` bool[n], True where the policy sampled: a turn is its choice, a second
  token that follows from it if the choice was action 1, and one token of tool output;
- `shaped_reward`, the outcome, 0 or 1; `turn_rewards` float64[K], zeros but in the task `paid`;
- `values` float64[n], exact, of what the agent sees; `states`, K names of what it sees;
- `logprobs`, `score_norms`, `hindsight_logprobs` float64[n], exact, the last one given the outcome;
- `information_gains` float64[K-1], the change of the exact chance of success; `parts`, the rewards
  `outcome` and `turns`;
- if declared with `@part("estimator", needs=[...])`: `baseline`, of a greedy episode ("greedy");
  `turn_values` float64[K+1], each the mean of REPLAYS replays ("turn_values"); `parent` and
  `first_turn` in trees of 2 x (1 + 3) ("branches"). What is played for that counts as sampled.

Length is the mean estimate's projection on the exact gradient, over the gradient's length; the
angle is what stands beside it, measured along the direction in which the other half of the batches
strays, so that chance alone gives 0 in the mean. Both are less the chance that two estimates
without a fault have on the same episodes (`controls`), but in trees. More than LIMIT standard
errors aside is called biased. Noise is the number of sampled tokens at which an estimate's variance
is as large as its squared length. Learning: Adam for the tokens of STEPS plain batches, the best of
RATES for each method and task; the share of what could be gained. Writes credit.json, .md, .png.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.credit_page import draw, page
from benchmarks.credit_tasks import (
    AMOUNT,
    TASKS,
    Played,
    Task,
    exact_gradient,
    play,
    softmax,
    solve,
)
from turnwise.algorithms.advantages import whiten
from turnwise.algorithms.aggregation import Totals
from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.estimators import EstimatorInput
from turnwise.algorithms.parts import GIVEN_BY_ROLLOUTS, PARTS, PLAIN_SUM, Requirement
from turnwise.errors import ConfigError
from turnwise.seeds import derive

TURNS = (2, 6, 12)
SIZE, REPLAYS, TREE = 8, 4, 4
BATCHES, LIMIT = 150, 3.5
SEEDS, STEPS, RATES = 4, 24, (0.1, 0.4)

LEFT_OUT = {
    "none": "has no credit; the terms beside it are a language model's",
    "distillation": "follows a teacher's likelihoods and no reward",
    "process_rloo": "needs the likelihoods of a reward model that is trained beside the policy",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "token_gae, decay 0.95": {"estimator": "token_gae", "numbers": {"decay": 0.95}},
    "token_gae, decay 0": {"estimator": "token_gae", "numbers": {"decay": 0.0}},
    "gigpo, discount 1": {"estimator": "gigpo", "numbers": {"discount": 1.0}},
    "gigpo, undivided": {"estimator": "gigpo", "numbers": {"discount": 1.0, "divide": 0}},
    "grpo, mean of tokens": {"aggregation": "sequence_mean_token_mean"},
    "rloo, whitened": {"estimator": "rloo", "whitening": True},
    "gdpo": {"estimator": "gdpo", "numbers": {"reward_weights": {"outcome": 1.0, "turns": 1.0}}},
}
"""Beside every estimator with its defaults; all but `mean of tokens` with the plain sum."""


def methods(own: Sequence[str] = ()) -> dict[str, Algorithm]:
    """Every estimator, the variants, and those given by `file.py:function`."""
    names = [name for name in PARTS["estimator"].names() if name not in LEFT_OUT]
    rows = {name: {"estimator": name} for name in (*names, *own)} | VARIANTS
    return {
        name: Algorithm(name, "", **{"aggregation": PLAIN_SUM} | row) for name, row in rows.items()
    }


@dataclass(frozen=True)
class Batches:
    """B batches of one group a prompt: episodes, and what training would hand an estimator."""

    played: Played
    policy: np.ndarray
    """float64[B, P, R, 2], of each batch; views where they are the same."""
    episodes: list[EstimatorInput]
    choices: list[np.ndarray]
    """The position of each own turn's choice among an episode's tokens."""
    first: np.ndarray
    """int[N]: the turn from which on an episode is its own."""
    beside: np.ndarray
    """int[B]: tokens sampled beside the episodes."""


def sample(task: Task, policy: np.ndarray, needs: frozenset[str], seed: int) -> Batches:
    """One batch for each of float64[B, P, R, 2]."""
    stream, (batches, prompts) = np.random.default_rng(seed), policy.shape[:2]
    flat = policy.reshape(-1, *policy.shape[2:])
    prompt = np.repeat(np.arange(batches * prompts), SIZE)
    played = play(task, flat, prompt, stream)
    first, beside = np.zeros(len(prompt), int), np.zeros(batches, int)
    signals: dict[str, Any] = {}
    if Requirement.BRANCHES in needs:
        played, first = _branched(task, flat, prompt, played, stream)
        signals["first"] = first
    if Requirement.GREEDY in needs:
        certain = (flat == flat.max(axis=-1, keepdims=True)).astype(float)
        greedy = play(task, certain, np.arange(len(flat)), stream)
        signals["greedy"] = greedy.total
        beside += _tokens(greedy).reshape(batches, -1).sum(axis=1)
    if Requirement.TURN_VALUES in needs:
        signals["values"], tokens = _replayed(task, flat, prompt, played, stream)
        beside += tokens.reshape(batches, -1).sum(axis=1)
    made, choices = _episodes(task, flat, prompt, played, first, signals)
    return Batches(played, policy, made, choices, first, beside)


def _branched(
    task: Task, policy: np.ndarray, prompt: np.ndarray, played: Played, stream: np.random.Generator
) -> tuple[Played, np.ndarray]:
    """Trees as `random_branches` grows them in one round: each root's branches begin at turns drawn
    from its later ones, none twice while there are others."""
    turns = (played.action[::TREE] >= 0).sum(axis=1)
    first = np.zeros((len(turns), TREE), int)
    for tree, count in enumerate(turns):
        first[tree, 1:] = np.resize(stream.permutation(np.arange(1, max(count, 2))), TREE - 1)
        first[tree] *= count > 1
    roots = np.repeat(np.arange(0, len(prompt), TREE), TREE)
    begun = Played(*(getattr(played, key)[roots] for key in Played.__dataclass_fields__))
    branches, is_root = (
        play(task, policy, prompt, stream, (begun, first.ravel())),
        roots == np.arange(len(prompt)),
    )
    merged = {
        key: np.where(is_root.reshape(-1, *[1] * (whole.ndim - 1)), getattr(played, key), whole)
        for key, whole in vars(branches).items()
    }
    return Played(**merged), first.ravel()


def _replayed(
    task: Task, policy: np.ndarray, prompt: np.ndarray, played: Played, stream: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """float64[N, T]: mean total reward of episodes from before each turn, NaN where there is none;
    and int[N], the tokens sampled for them."""
    episode, turn = np.nonzero(played.action >= 0)
    rows, begin = np.repeat(episode, REPLAYS), np.repeat(turn, REPLAYS)
    begun = Played(*(getattr(played, key)[rows] for key in Played.__dataclass_fields__))
    replays = play(task, policy, prompt[rows], stream, (begun, begin))
    values = np.full(played.action.shape, np.nan)
    values[episode, turn] = replays.total.reshape(-1, REPLAYS).mean(axis=1)
    return values, np.bincount(rows, _tokens(replays, begin), len(prompt)).astype(int)


def _tokens(played: Played, first: np.ndarray | int = 0) -> np.ndarray:
    """int[N]: sampled tokens from a turn on; action a is 1 + a."""
    own = np.arange(played.action.shape[1]) >= np.reshape(first, (-1, 1))
    return ((played.action + 1) * own).sum(axis=1)


def _episodes(
    task: Task,
    policy: np.ndarray,
    prompt: np.ndarray,
    played: Played,
    first: np.ndarray,
    signals: Mapping[str, Any],
) -> tuple[list[EstimatorInput], list[np.ndarray]]:
    """What `EstimatorInput` says of each episode, and its choices' positions."""
    known, chance = _seen(task, policy)
    made, places = [], []
    for index, start in enumerate(first):
        turns = int((played.action[index] >= 0).sum())
        steps, own = np.arange(turns), prompt[index]
        act = played.action[index, :turns]
        seen = task.seen[played.situation[index, :turns]]
        turn = np.repeat(steps, 2 + act).astype(np.int32)
        ends = np.cumsum(2 + act)
        choice, tools = ends - 2 - act, ends - 1
        second = choice[act == 1] + 1
        mask = np.ones(len(turn), np.bool_)
        mask[tools] = False
        mask &= turn >= start
        values, logprobs, norms, hindsight = np.zeros((4, len(turn)))
        values[choice], values[second] = (
            known["v"][own, steps, seen],
            known["q"][own, steps, seen, 1][act == 1],
        )
        pi = policy[own, task.rows[steps, played.situation[index, :turns]]]
        logprobs[choice] = np.log(pi[steps, act])
        norms[choice] = 1 - 2 * pi[steps, act] + (pi**2).sum(axis=1)
        given = np.abs(1 - played.outcome[index] - chance["q"][own, steps, seen])
        hindsight[choice] = logprobs[choice] + np.log(given[steps, act] / (pi * given).sum(axis=1))
        made.append(
            EstimatorInput(
                shaped_reward=float(played.outcome[index]),
                turn=turn,
                mask=mask,
                turn_rewards=played.pay[index, :turns],
                values=values,
                states=[f"{step} {there}" for step, there in enumerate(seen.tolist())],
                parts={"outcome": played.outcome[index], "turns": played.pay[index].sum()},
                first_turn=int(start),
                logprobs=logprobs,
                hindsight_logprobs=hindsight,
                score_norms=norms,
                information_gains=np.diff(chance["v"][own, steps, seen]),
                parent=int(index % SIZE // TREE * TREE) if "first" in signals else None,
                baseline=float(signals["greedy"][own]) if "greedy" in signals else None,
                turn_values=np.append(signals["values"][index, :turns], played.total[index])
                if "values" in signals
                else None,
            )
        )
        places.append(choice[start:])
    return made, places


def _seen(task: Task, policy: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns to come, and the chance of success, by what is seen: v [P, T, seen], q [.., 2]."""
    classes = np.eye(int(task.seen.max()) + 1)[task.seen]
    found = []
    for amount in (AMOUNT, 0.0):
        solution = solve(task, policy, amount)
        mass = np.maximum(solution.visits @ classes, 1e-300)
        weighted = solution.visits[..., None] * solution.q
        q = np.einsum("ptsa,so->ptoa", weighted, classes) / mass[..., None]
        found.append({"v": (solution.visits * solution.values) @ classes / mass, "q": q})
    return found[0], found[1]


def gradients(task: Task, algorithm: Algorithm, made: Batches) -> np.ndarray:
    """float64[B, P, R, 2]: each batch's estimate, by the estimator, whitening and aggregation that
    training calls."""
    batches, prompts = made.policy.shape[:2]
    advantages = np.zeros(made.played.action.shape)
    for batch in range(batches):
        rows = range(batch * prompts * SIZE, (batch + 1) * prompts * SIZE)
        groups = [
            [made.episodes[n] for n in rows[at : at + SIZE]] for at in range(0, len(rows), SIZE)
        ]
        credits = algorithm.call("estimator", groups)
        if algorithm.whitening:
            credits = whiten(credits, groups)
        counts = np.array([made.episodes[n].mask.sum() for n in rows])
        names = [str(n // SIZE) for n in rows]
        weights = algorithm.call("aggregation", counts, names, Totals.of(counts, names))
        flat = [credit for group in credits for credit in group]
        for n, credit, weight in zip(rows, flat, weights, strict=True):
            own = credit.advantages[made.choices[n]]
            advantages[n, made.first[n] : made.first[n] + len(own)] = weight * own
    return summed(task, made, advantages)


def controls(task: Task, made: Batches) -> np.ndarray:
    """float64[2, B, P, R, 2]: two estimates without a fault, computed here from what no method
    knows: with the outcome less its exact expectation, and with exact advantages."""
    policy = made.policy[0]
    solution, prompts = solve(task, policy), np.arange(len(made.first)) // SIZE % len(policy)
    expected = solution.values[:, 0, :2].mean(axis=1)[prompts]
    steps, played = np.arange(task.turns), made.played
    place = (prompts[:, None], steps, played.situation)
    exact = solution.q[(*place, played.action)] - solution.values[place]
    outcome = np.broadcast_to((played.total - expected)[:, None], exact.shape)
    share = len(policy) * SIZE
    return np.stack([summed(task, made, one / share) for one in (outcome, exact)])


def summed(task: Task, made: Batches, advantages: np.ndarray) -> np.ndarray:
    """float64[B, P, R, 2]: the sum of advantages, float64[N, T], times gradients of log pi."""
    batches, prompts = made.policy.shape[:2]
    episode, turn = np.nonzero(made.played.action >= 0)
    batch, prompt = np.divmod(episode // SIZE, prompts)
    row = task.rows[turn, made.played.situation[episode, turn]]
    policy = np.broadcast_to(made.policy, (batches, *made.policy.shape[1:]))[batch, prompt, row]
    score = np.eye(2)[made.played.action[episode, turn]] - policy
    total = np.zeros(made.policy.shape)
    np.add.at(total, (batch, prompt, row), advantages[episode, turn, None] * score)
    return total


def sampled(made: Batches) -> np.ndarray:
    """int[B]: tokens that each batch cost."""
    return _tokens(made.played, made.first).reshape(len(made.policy), -1).sum(axis=1) + made.beside


def compare(
    found: np.ndarray, exact: np.ndarray, tokens: float, known: np.ndarray
) -> dict[str, float]:
    """Length, angle and noise of float64[B, D] estimates, each with its standard error; `known` are
    float64[C, B, D] estimates of the same episodes whose mean is `exact`."""
    unit = np.linalg.norm(exact)
    along = _without(found @ exact / unit**2, known @ exact / unit**2 - 1)
    length = along.mean()
    aside, beside = (
        one - np.multiply.outer(one @ exact / unit**2, exact) for one in (found, known)
    )
    strayed = np.zeros(len(found))
    even = np.arange(len(found)) % 2 == 0
    for half in (even, ~even):
        towards = _shrunk(aside[~half], beside[:, ~half])
        strayed[half] = _without(aside[half] @ towards, beside[:, half] @ towards)
    mean, error = strayed.mean(), strayed.std(ddof=1) / np.sqrt(len(strayed))
    scale = max(length, 1e-3) * unit
    squares = ((found - found.mean(axis=0)) ** 2).sum(axis=1)
    length_error = along.std(ddof=1) / np.sqrt(len(along))
    angles = [
        np.degrees(np.arctan2(max(0.0, one), scale))
        for one in (mean, mean - 1.96 * error, max(mean, 0) + 1.96 * error)
    ]
    relative = np.hypot(
        squares.std(ddof=1) / np.sqrt(len(squares)) / squares.mean(),
        2 * length_error / max(length, 1e-3),
    )
    noise = tokens * squares.mean() / scale**2
    return {
        "length": float(length),
        "length_error": float(length_error),
        "angle": float(angles[0]),
        "angle_low": float(angles[1]),
        "angle_high": float(angles[2]),
        "z": float(mean / error) if error else 0.0,
        "noise": float(noise),
        "noise_error": float(noise * relative),
    }


def _without(numbers: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """float64[B] less what float64[C, B] of mean 0 explain of it (control variates)."""
    if not len(chance):
        return numbers
    centred = chance - chance.mean(axis=1, keepdims=True)
    return numbers - np.linalg.lstsq(centred.T, numbers, rcond=None)[0] @ chance


def _shrunk(aside: np.ndarray, beside: np.ndarray) -> np.ndarray:
    """The unit vector in which the mean of float64[B, D] strays, coordinate by coordinate without
    what chance explains."""
    columns = [_without(aside[:, d], beside[:, :, d]).mean() for d in range(aside.shape[1])]
    return np.array(columns) / max(float(np.linalg.norm(columns)), 1e-300)


def learn(task: Task, algorithm: Algorithm, budget: float) -> dict[str, float]:
    """The share of the possible gain after a budget of sampled tokens, over SEEDS."""
    copies = SEEDS * len(RATES)
    rates = np.repeat(RATES, SEEDS)[:, None, None, None]
    logits = np.repeat(task.logits[None], copies, axis=0)
    first, second, spent, step = 0.0, 0.0, 0.0, 0
    while spent < budget:
        made = sample(
            task, softmax(logits), algorithm.needs, derive("learn", task.name, task.turns, step)
        )
        slope, step = gradients(task, algorithm, made), step + 1
        spent += sampled(made).mean()
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope**2
        scale = np.sqrt(second / (1 - 0.99**step)) + 1e-8
        logits = logits + rates * first / (1 - 0.9**step) / scale
    before, best = (solve(task, softmax(task.logits), best=best).start for best in (False, True))
    gains = [(solve(task, softmax(own)).start - before) / (best - before) for own in logits]
    rows = np.array(gains).reshape(len(RATES), SEEDS)
    own = rows[rows.mean(axis=1).argmax()]
    return {
        "learned": float(own.mean()),
        "learned_error": float(own.std(ddof=1) / SEEDS**0.5),
        "updates": step,
    }


def measure(
    name: str, turns: int, chosen: Mapping[str, Algorithm], batches: int, learning: bool = True
) -> list[dict[str, Any]]:
    """A row for each method on one task; a method that refuses the task's rewards has none."""
    task = TASKS[name](turns)
    policy = softmax(task.logits)
    exact = exact_gradient(task, policy).ravel()
    several, kept, known, rows = np.repeat(policy[None], batches, axis=0), {}, {}, []
    for method, algorithm in chosen.items():
        needs = algorithm.needs & GIVEN_BY_ROLLOUTS
        for key in (needs, frozenset()):
            if key not in kept:
                kept[key] = sample(task, several, key, derive("credit", name, turns))
                known[key] = controls(task, kept[key]).reshape(2, batches, -1)
                known[key] = known[key][: 0 if Requirement.BRANCHES in key else 2]
        row: dict[str, Any] = {"method": method, "task": name, "turns": turns}
        try:
            found = gradients(task, algorithm, kept[needs]).reshape(batches, -1)
        except ConfigError:
            continue
        row |= compare(found, exact, float(sampled(kept[needs]).mean()), known[needs])
        if learning:
            row |= learn(task, algorithm, STEPS * float(sampled(kept[frozenset()]).mean()))
        rows.append(row)
    return rows


def left_out() -> str:
    """A sentence on each estimator that is not measured, and why."""
    return "".join(f"\n`{name}` is left out: it {why}.\n" for name, why in LEFT_OUT.items())


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/credit"))
    parser.add_argument("--method", action="append", default=[], help="file.py:function")
    parser.add_argument("--only", nargs="+", help="these methods alone")
    parser.add_argument("--turns", type=int, nargs="+", default=TURNS)
    parser.add_argument("--learn", type=int, nargs="*", default=[6], help="lengths to learn at")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    chosen = methods(arguments.method)
    if unknown := set(arguments.only or ()) - set(chosen):
        parser.error(f"no method {', '.join(sorted(unknown))}: choose of {', '.join(chosen)}")
    chosen = {name: row for name, row in chosen.items() if name in (arguments.only or chosen)}
    cases = [(name, turns) for turns in sorted(arguments.turns, reverse=True) for name in TASKS]
    with ProcessPoolExecutor(arguments.workers) as pool:
        futures = [
            pool.submit(measure, *case, chosen, BATCHES, case[1] in arguments.learn)
            for case in cases
        ]
        rows = [row for future in futures for row in future.result()]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "credit.json").write_text(json.dumps(rows, indent=1) + "\n")
    (arguments.out / "credit.md").write_text(text := page(rows, LIMIT) + left_out())
    draw(rows, LIMIT, arguments.out / "credit.png")
    print(text)


if __name__ == "__main__":
    main()
