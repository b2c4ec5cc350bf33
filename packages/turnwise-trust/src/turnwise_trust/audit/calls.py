"""Calls of an environment's own code where no episode is played, and what comes of its errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from turnwise.environments.base import Environment
from turnwise.errors import NotSupportedError, located
from turnwise.types import Action, Task


class EnvironmentRaised(Exception):
    """Code of an environment has raised, or another process of it failed; the text says where."""


@contextmanager
def of_environment(place: str) -> Iterator[None]:
    """Inside, an environment's code is called. Raises EnvironmentRaised for what it raises."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise EnvironmentRaised(f"{place} raises {located(error)}") from error


def oracle_of(environment: Environment, task: Task) -> Sequence[Action] | None:
    """The actions of the oracle; None where it does not know the task. Raises EnvironmentRaised
    where it raises, and where an action is none, or has an answer that is no text."""
    place = f"oracle() of task {task.id}"
    with of_environment(place):
        try:
            actions = list(environment.oracle(task))
        except NotSupportedError:
            return None
    for one in actions:
        if not isinstance(one, Action) or not isinstance(one.answer, str | None):
            said = getattr(one, "answer", one)
            raise EnvironmentRaised(
                f"{place} gives {said!r}: an Action, or its text, belongs there"
            )
    return actions


def known_oracle(
    environment: Environment, tasks: Sequence[Task], go_on: Callable[[], bool] = lambda: True
) -> tuple[Mapping[str, Sequence[Action]], str]:
    """The actions of the oracle by the tasks that it can do, and its first error; of as many tasks
    as `go_on` allows, which is asked before each, since an oracle may have to search."""
    known: dict[str, Sequence[Action]] = {}
    problem = ""
    for task in tasks:
        if not go_on():
            break
        try:
            actions = oracle_of(environment, task)
        except EnvironmentRaised as error:
            problem = problem or str(error)
        else:
            known |= {} if actions is None else {task.id: actions}
    return known, problem
