"""A fake model for judges: a function that answers. For tests and dry runs, without a model."""

from collections.abc import Callable, Sequence

from turnwise.chat.endpoint import CHARACTERS_PER_TOKEN, Reply
from turnwise_judges.base import Message

Script = Callable[[Sequence[Message]], str]
"""A function from the messages to the reply's text."""


class ScriptedModel:
    """Example: ScriptedModel(example_reply)."""

    def __init__(self, script: Script, name: str = "") -> None:
        """`name` is for the cache: two scripts of one name are the same."""
        self._script = script
        self.identity = f"script {name or script}"

    async def complete(self, messages: Sequence[Message]) -> Reply:
        """The function's reply; its tokens are estimated."""
        text = self._script(messages)
        characters = sum(len(message["content"]) for message in messages) + len(text)
        return Reply(text, characters // CHARACTERS_PER_TOKEN)


def example_reply(messages: Sequence[Message]) -> str:
    """The example of a reply that stands at the end of every request: an answer in the right form
    with values from the middle, whatever the record holds."""
    return messages[-1]["content"].splitlines()[-1]
