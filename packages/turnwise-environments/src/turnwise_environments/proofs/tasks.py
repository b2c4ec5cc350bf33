"""The tasks of the environment of proofs: theorems, made by program.

No theorem of one split is in the other under other names, or with its premises in another order.
Not here: how theorems are drawn (`theorems.py`).
"""

import hashlib
import random
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from turnwise.environments.tasksets import SOLVED, Draft, TaskSet, drafted
from turnwise.errors import ConfigError
from turnwise.options import Options
from turnwise.ranges import Count, Range
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.proofs.theorems import Theorem, draw
from turnwise_environments.rewards.proofs import written

RANDOM_SCORE = 0.0095
"""Measured on the standard tasks: success of an agent that copies the premises and draws a rule,
and the lines that it cites, for the conclusion."""
TRIES = 15
"""Theorems that are drawn for each draft, at most."""
DRAFTS_PER_TASK = 20
STEPS = 6
"""Steps of the longest known proof."""

Steps = Annotated[int, Range(1, STEPS)]


@dataclass(frozen=True)
class MadeTheorems(Options):
    """`count` theorems in each split, whose known proofs have `min_steps` to `max_steps` steps."""

    count: Count = 1000
    min_steps: Steps = 1
    max_steps: Steps = 5

    def load(self) -> TaskSet:
        """Make them. Raises ConfigError where there are not so many."""
        if self.min_steps > self.max_steps:
            raise ConfigError("proofs: min_steps is above max_steps: lower it")
        scores = SOLVED | ({"random": RANDOM_SCORE} if self == STANDARD else {})
        drafts = drafted(self._draft, 2 * self.count * DRAFTS_PER_TASK)
        return TaskSet.made("proofs", drafts, self.count, scores)

    def _draft(self, number: int) -> Draft | None:
        steps = self.min_steps + number % (self.max_steps - self.min_steps + 1)
        stream = random.Random(derive("proofs", steps, number))
        for _ in range(TRIES):
            theorem = draw(stream, steps)
            if theorem is not None:
                return Draft(theorem.shape, partial(_task, theorem))
        return None


STANDARD = MadeTheorems()


def _task(theorem: Theorem) -> Task:
    premises = [written(one) for one in theorem.premises]
    conclusion = written(theorem.conclusion)
    given = f" from {', '.join(premises)}" if premises else ""
    prompt = f"Prove {conclusion}{given}."
    identity = hashlib.sha256(prompt.encode()).hexdigest()[:16]
    stated = {"premises": premises, "conclusion": conclusion}
    secret = {**stated, "proof": theorem.proof}
    return Task(identity, prompt, secret, stated, {"steps": theorem.steps})
