"""Tasks whose deciding turns are known, small enough that every expectation is exact.

An episode has T turns of two actions in one of S situations: three fates (open, good, bad) times
two observations that say nothing, and two ends. Each of P prompts has a tabular softmax policy of
its own, [P, R, 2] logits: the easy one leans towards what is right, the hard one against it. Values
and the policy gradient come from recursions over [T, S], which are sums over all trajectories.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

OPEN, GOOD, BAD = range(3)
SITUATIONS, END_GOOD, END_BAD = 8, 6, 7
EASY, HARD = 0.5, -2.5
AMOUNT = 0.2
"""The reward that a paying turn gives."""


@dataclass(frozen=True)
class Task:
    """One task at one length; action 1 is the right one where anything depends on it."""

    name: str
    move: np.ndarray
    """float64[T, S, 2, S]: probabilities of the next situation."""
    pays: np.ndarray
    """float64[T, S, 2]: the probability that the turn is paid AMOUNT."""
    win: np.ndarray
    """float64[S]: the probability of outcome 1, else 0, by the last situation."""
    rows: np.ndarray
    """int[T, S]: the policy's row of logits, of R."""
    seen: np.ndarray
    """int[S]: what agent, critic and names of states tell apart within a turn."""
    logits: np.ndarray
    """float64[P, R, 2], before learning."""

    @property
    def turns(self) -> int:
        return len(self.move)


@dataclass(frozen=True)
class Solution:
    """Exact expectations under a policy."""

    visits: np.ndarray
    """float64[P, T, S]"""
    values: np.ndarray
    """float64[P, T, S]: what is still to come."""
    q: np.ndarray
    """float64[P, T, S, 2]"""
    start: float
    """The mean return over prompts."""


def softmax(logits: np.ndarray) -> np.ndarray:
    """float64[..., 2] probabilities"""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def solve(task: Task, policy: np.ndarray, amount: float = AMOUNT, best: bool = False) -> Solution:
    """The solution for probabilities float64[P, R, 2]; `amount` 0 leaves the outcome alone, `best`
    takes the best action of every situation instead."""
    prompts, turns = len(policy), task.turns
    values = np.broadcast_to(task.win, (prompts, SITUATIONS))
    q, found = np.zeros((prompts, turns, SITUATIONS, 2)), np.zeros((prompts, turns, SITUATIONS))
    for turn in range(turns - 1, -1, -1):
        q[:, turn] = amount * task.pays[turn] + np.einsum("sax,px->psa", task.move[turn], values)
        chosen = policy[:, task.rows[turn]]
        values = q[:, turn].max(-1) if best else (chosen * q[:, turn]).sum(-1)
        found[:, turn] = values
    visits = np.zeros((prompts, turns, SITUATIONS))
    here = np.zeros((prompts, SITUATIONS))
    here[:, :2] = 0.5
    for turn in range(turns):
        visits[:, turn] = here
        chosen = policy[:, task.rows[turn]]
        here = np.einsum("ps,psa,sax->px", here, chosen, task.move[turn])
    return Solution(visits, found, q, float(found[:, 0, :2].mean()))


def exact_gradient(task: Task, policy: np.ndarray) -> np.ndarray:
    """float64[P, R, 2]: of the mean return over prompts by the logits."""
    solution, gradient = solve(task, policy), np.zeros(policy.shape)
    chosen = policy[:, task.rows]
    gain = solution.q - solution.values[..., None]
    np.add.at(
        gradient, (slice(None), task.rows), solution.visits[..., None] * chosen * gain / len(policy)
    )
    return gradient


@dataclass(frozen=True)
class Played:
    """N episodes; what an ended episode does is -1."""

    situation: np.ndarray
    """int[N, T]"""
    action: np.ndarray
    """int[N, T]"""
    pay: np.ndarray
    """float64[N, T]"""
    outcome: np.ndarray
    """float64[N]"""

    @property
    def total(self) -> np.ndarray:
        """float64[N]"""
        return self.outcome + self.pay.sum(axis=1)


def play(
    task: Task,
    policy: np.ndarray,
    prompt: np.ndarray,
    stream: np.random.Generator,
    begun: tuple[Played, np.ndarray] | None = None,
) -> Played:
    """An episode for each of int[N] prompts; `begun` are others of which all before turn int[N]
    stands, and that turn's situation."""
    count, turns = len(prompt), task.turns
    here = stream.integers(2, size=count)
    situation, action = np.full((2, count, turns), -1)
    pay = np.zeros((count, turns))
    for turn in range(turns):
        draws = stream.random((3, count))
        if begun:
            here = np.where(turn <= begun[1], begun[0].situation[:, turn], here)
        act = (draws[0] < policy[prompt, task.rows[turn, here], 1]).astype(int)
        paid = AMOUNT * (draws[1] < task.pays[turn, here, act])
        if begun:
            act = np.where(turn < begun[1], begun[0].action[:, turn], act)
            paid = np.where(turn < begun[1], begun[0].pay[:, turn], paid)
        on = (here < END_GOOD) & (here >= 0)
        situation[on, turn], action[on, turn], pay[on, turn] = here[on], act[on], paid[on]
        ahead = (draws[2][:, None] > task.move[turn, here, act].cumsum(axis=1)).sum(axis=1)
        here = np.where(on, np.minimum(ahead, END_BAD), here)
    outcome = (stream.random(count) < task.win[here]).astype(float)
    return Played(situation, action, pay, outcome)


Fates = dict[tuple[int, int], list[float]]
"""(fate, action) -> probabilities of open, good, bad, end good, end bad."""


def _moves(fates: Fates) -> np.ndarray:
    """float64[S, 2, S]: what is not named stays; observations are drawn anew."""
    move = np.zeros((SITUATIONS, 2, SITUATIONS))
    move[END_GOOD:, :, END_GOOD:] = np.eye(2)[:, None]
    for fate in (OPEN, GOOD, BAD):
        for action in range(2):
            chances = np.array(fates.get((fate, action), np.eye(5)[fate]))
            move[2 * fate : 2 * fate + 2, action, :END_GOOD] = np.repeat(chances[:3] / 2, 2)
            move[2 * fate : 2 * fate + 2, action, END_GOOD:] = chances[3:]
    return move


def _decision(right: float) -> Fates:
    return {(OPEN, 0): [0, 1 - right, right, 0, 0], (OPEN, 1): [0, right, 1 - right, 0, 0]}


def _task(
    name: str,
    turns: int,
    deciding: dict[int, Fates],
    other: Fates | None = None,
    pays: tuple[float, float] = (0.0, 0.0),
    unseen: bool = False,
    shared: bool = False,
    win: tuple[float, float, float] = (0.02, 0.9, 0.02),
) -> Task:
    """`deciding` by turn; `other` is what happens at all other turns, where `pays` holds too."""
    move = np.array([_moves(deciding.get(turn, other or {})) for turn in range(turns)])
    paying = np.zeros((turns, SITUATIONS, 2))
    paying[[turn not in deciding for turn in range(turns)], :END_GOOD] = pays
    seen = np.arange(SITUATIONS) % 2 if unseen else np.arange(SITUATIONS)
    rows = seen + (0 if shared else np.arange(turns)[:, None] * SITUATIONS)
    rows = np.broadcast_to(rows % 2 if shared else rows, (turns, SITUATIONS))
    logits = np.zeros((2, int(rows.max()) + 1, 2))
    lean = rows[list(deciding), :END_GOOD].ravel()
    logits[0, lean, 1], logits[1, lean, 1] = EASY, HARD
    return Task(name, move, paying, np.repeat([*win, 1, 0], [2, 2, 2, 1, 1]), rows, seen, logits)


def _keys(turns: int) -> Task:
    first: Fates = {(OPEN, 0): [0, 0, 1, 0, 0]}
    return _task("two keys", turns, {0: first, turns - 1: _decision(1.0)})


def _stop(turns: int) -> Task:
    answer: Fates = {
        (OPEN, 0): [0.6, 0.4, 0, 0, 0],
        (OPEN, 1): [0, 0, 0, 0.2, 0.8],
        (GOOD, 1): [0, 0, 0, 0.9, 0.1],
    }
    return _task("stop", turns, dict.fromkeys(range(turns), answer), win=(0, 0, 0))


DRIFT: Fates = {
    (fate, action): [0, 0.95, 0.05, 0, 0] if fate == GOOD else [0, 0.05, 0.95, 0, 0]
    for fate in (GOOD, BAD)
    for action in range(2)
}
TASKS: dict[str, Callable[[int], Task]] = {
    "first": lambda turns: _task("first", turns, {0: _decision(1.0)}),
    "last": lambda turns: _task("last", turns, {turns - 1: _decision(1.0)}),
    "tool": lambda turns: _task("tool", turns, {turns // 3: _decision(0.8)}, DRIFT),
    "two keys": _keys,
    "unseen": lambda turns: _task("unseen", turns, {0: _decision(1.0)}, unseen=True),
    "shared": lambda turns: _task("shared", turns, {0: _decision(1.0)}, shared=True),
    "paid": lambda turns: _task("paid", turns, {0: _decision(1.0)}, pays=(0.4, 0.6)),
    "stop": _stop,
}
"""By length. first, last: where the deciding turn is. tool: at a third, carried out with chance
0.8; later turns reverse it with chance 0.05. two keys: first and last turn both. unseen: as first,
but no later turn shows what was decided. shared: as first, but all turns use the same two rows of
logits. paid: as first, and every other turn is paid 0.2 with chance 0.4 or 0.6. stop: action 1
answers, which succeeds with 0.2, or 0.9 once a search (chance 0.4) has found something."""
