"""Parts of runs that teach nothing: a scaffold that reads whatever a random model writes as it is
told to, and environments whose tools and verdicts leave nothing to learn from."""

from collections.abc import Sequence
from typing import Any

from tests.fakes import CAPITALS, Capitals
from turnwise.errors import NotSupportedError
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Verdict


class Always(TagsScaffold):
    """Reads each turn as the same action: a call, or an answer where one is given."""

    def __init__(self, *arguments: Any, answer: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.answer = answer

    def parse(self, tokens: Sequence[int]) -> Action:
        text = super().parse(tokens).text
        if self.answer:
            return Action(text, answer=self.answer)
        return Action(text, calls=(ToolCall("lookup", {"country": "France"}),))


class Wordy(Capitals):
    """The tool returns more than there is room for."""

    @tool
    def lookup(self, country: str) -> str:
        """Look a country up."""
        return f"Much is to be said of {country}. " * 20


class Curt(Capitals):
    """The tool returns the beginning of what it knows."""

    @tool
    def lookup(self, country: str) -> str:
        """Look a country up."""
        told = f"The capital is {CAPITALS[country]}."
        return self.truncate(told, 8)

    def tasks(self, split: str) -> Sequence[Task]:
        return [Task("France", "Capital of France?", {"answers": ["Paris"]})]


class Unjudged(Capitals):
    """Its verifier fails in all episodes, or in all but the first of each group. It has no oracle,
    with which an audit before the run would refuse it."""

    def __init__(self, every: bool = False) -> None:
        self.every = every

    async def verify(self, trajectory: Trajectory) -> Verdict:
        if self.every or trajectory.episode:
            raise OSError("the grader is away")
        return await super().verify(trajectory)

    def oracle(self, task: Task) -> Sequence[Action]:
        raise NotSupportedError("nothing says what is right")
