"""Episodes that make a judge answer nonsense: `python benchmarks/judge_escape.py`.

A policy chooses one of three ways to end an episode; a judge scores it, and some replies are
malformed. Softmax policy, groups of 8, advantages less the group's mean and by its spread, plain
policy gradient, 300 steps. Two rules for a malformed judgement: the episode is left out of its
group, or it has the lowest score. The table has the probability of each ending at the end, the mean
of 20 seeds with the smallest and the largest.

- `escape`: the third ending is as bad as the second, and nine times in ten its judgement is
  malformed: an agent could hide there. As a habit it is half of what the policy does at first.
- `fault`: no ending is an escape; what is good is long, and the judge cannot answer half of it.
- `fault at 9 of 10`: the same, nine times in ten.

It measures what the two rules teach, not how often a language model answers nonsense.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SCORES = np.array([1.0, 0.2, 0.2])
ENDINGS = ("good", "bad", "third")
STEPS, GROUPS, MEMBERS, RATE, SEEDS = 300, 8, 8, 0.05, 20


@dataclass(frozen=True)
class Setting:
    """A name, the probabilities at the beginning, and how often each ending's judgement is
    malformed."""

    name: str
    begin: tuple[float, float, float]
    malformed: tuple[float, float, float]


SETTINGS = (
    Setting("escape", (0.1, 0.8, 0.1), (0.0, 0.0, 0.9)),
    Setting("escape is a habit", (0.02, 0.49, 0.49), (0.0, 0.0, 0.9)),
    Setting("fault", (0.1, 0.8, 0.1), (0.5, 0.0, 0.0)),
    Setting("fault at 9 of 10", (0.1, 0.8, 0.1), (0.9, 0.0, 0.0)),
)


def trained(setting: Setting, left_out: bool, seed: int) -> NDArray[np.float64]:
    """The probabilities of the endings after training, float64[3]."""
    random = np.random.default_rng(seed)
    logits = np.log(setting.begin)
    malformed = np.array(setting.malformed)
    for _ in range(STEPS):
        policy = np.exp(logits) / np.exp(logits).sum()
        gradient = np.zeros(3)
        for _ in range(GROUPS):
            chosen = random.choice(3, MEMBERS, p=policy)
            nonsense = random.random(MEMBERS) < malformed[chosen]
            rewards = np.where(nonsense, 0.0, SCORES[chosen])
            graded = ~nonsense if left_out else np.ones(MEMBERS, bool)
            if graded.sum() < 2 or np.ptp(rewards[graded]) == 0:
                continue
            own = rewards[graded]
            advantages = (own - own.mean()) / own.std()
            score = np.eye(3)[chosen[graded]] - policy
            gradient += (advantages[:, None] * score).sum(axis=0) / MEMBERS
        logits = logits + RATE * gradient
    return np.exp(logits) / np.exp(logits).sum()


def main() -> None:
    """Print the table."""
    from tables import table

    rows = []
    for setting in SETTINGS:
        for rule, left_out in (("left out", True), ("lowest score", False)):
            found = np.array([trained(setting, left_out, seed) for seed in range(SEEDS)])
            cells = {
                ending: f"{mean:.2f} ({low:.2f} – {high:.2f})"
                for ending, mean, low, high in zip(
                    ENDINGS, found.mean(0), found.min(0), found.max(0), strict=True
                )
            }
            rows.append({"setting": setting.name, "malformed is": rule} | cells)
    print(table(rows))


if __name__ == "__main__":
    main()
