"""An environment in which a policy says what an action will bring, from a file of transitions.

    [environment]
    name = "turnwise_synthesis.next_observations:NextObservations"
    options.tasks.file = "synthesised/mine/items.jsonl"

The synthesis method `transitions` writes such files. The reward is 1 where the prediction is near
enough to what came back. Source: Reinforcement World Model Learning (arXiv 2602.05842, section
2.2). Other than there, whose distance of texts is 1 less the cosine of their embeddings: the
distance is 1 less ROUGE-L (Lin 2004), as for structured replies there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.records import read_each
from turnwise.environments.tasksets import SOLVED, TaskFile, TaskSet, identities
from turnwise.environments.turn_parts import share
from turnwise.ranges import Share
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Task, Trajectory, Verdict
from turnwise_environments.common import check_texts, identity

NEAR = 0.2
"""The distance of the paper's training on ALFWorld."""


@dataclass(frozen=True)
class TransitionFile(TaskFile):
    """JSON lines with a `question` and an `answer`, of which a share is held out."""

    def load(self) -> TaskSet:
        """Raises DataError for a file without any such line."""
        tasks, told = read_each(self.path, _task)
        return TaskSet.shuffled(tasks, self.heldout_share, SOLVED, told, identities)


class NextObservations(Environment):
    """No tool; the answer is the prediction."""

    facts = EnvironmentSpec(
        "next_observations", "1", parts={"similarity": share("ROUGE-L of the prediction")}
    )

    def __init__(self, tasks: TransitionFile, max_distance: Share = NEAR) -> None:
        """Predictions at a distance below `max_distance` have the reward 1."""
        self.task_set, self.max_distance = tasks.load(), max_distance

    async def reset(self, task: Task, seed: int) -> Observation:
        del seed
        return Observation(task.prompt, Source.USER)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        answer, wanted = trajectory.answer or "", trajectory.task.secret["answer"]
        right = is_near(answer, wanted, self.max_distance)
        parts = {"similarity": rouge(answer, wanted)}
        return Verdict(float(right), right, parts, f"predicted {answer!r:.200}")

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", answer=task.secret["answer"])]


def is_near(predicted: str, observed: str, max_distance: float) -> bool:
    """The reward of a prediction: whether its distance from the observation is below the bound."""
    return 1 - rouge(predicted, observed) < max_distance


def rouge(predicted: str, observed: str) -> float:
    """ROUGE-L, the F-measure of the longest common subsequence of two texts' words.

    >>> rouge("2: a door", "2: a b")
    0.6666666666666666
    """
    one, other = predicted.split(), observed.split()
    longest = [0] * (len(other) + 1)
    for word in one:
        before = longest
        longest = [0]
        for place, candidate in enumerate(other):
            found = before[place] + 1 if word == candidate else 0
            longest.append(max(found, before[place + 1], longest[place]))
    return 2 * longest[-1] / max(len(one) + len(other), 1)


def _task(record: Mapping[str, Any], where: str) -> Task:
    check_texts(record, ("question", "answer"), where)
    question, answer = record["question"], record["answer"]
    return Task(identity([question, answer]), question, {"answer": answer})
