"""One episode of given actions, for the tests of environments."""

from turnwise.environments.base import Environment
from turnwise.environments.measurement import Play, played_all
from turnwise.types import Action, Task, Verdict


def played(environment: Environment, task: Task, *actions: Action) -> Play:
    """The episode."""
    (play,) = played_all(environment, [task], [actions])
    return play


def judged(environment: Environment, task: Task, *actions: Action) -> Verdict:
    """What the verifier says of the episode."""
    verdict = played(environment, task, *actions).trajectory.verdict
    assert verdict is not None
    return verdict
