"""What a person is told of the tools before an episode."""

from typing import Literal

from tests.fakes import byte_tokenizer
from turnwise.environments.base import Environment
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tools.tool import tool
from turnwise_environments.play import how_to_act


class Lift(Environment):
    @tool
    def go(
        self, way: Literal["up", "down"], floors: int | None, stops: list[int], fast: bool
    ) -> str:
        """Go."""
        return f"{way} {floors} {stops} {fast}"


def test_tools_are_told_with_all_that_an_argument_may_be() -> None:
    tokenizer, tools = byte_tokenizer(), Lift().tools()
    told = how_to_act(TagsScaffold(tokenizer, tools), tools, tokenizer.decode)
    kinds = 'way: "up" | "down", floors: integer | null, stops: array of integer, fast: boolean'
    assert f"go({kinds}): Go." in told
    assert '"way": "up", "floors": 1' in told
