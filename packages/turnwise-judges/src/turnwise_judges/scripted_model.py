"""A fake model for judges: a function that answers. For tests and dry runs, without a model."""

from collections.abc import Callable, Sequence

from turnwise.chat.endpoint import CHARACTERS_PER_TOKEN, Reply
from turnwise_judges.base import Message

Script = Callable[[Sequence[Message]], str]


class ScriptedModel:
    """Example: ScriptedModel(example_reply)."""

    def __init__(self, script: Script, name: str = "") -> None:
        """Two scripts of one name are the same for the cache."""
        self._script = script
        self.identity = f"script {name or script}"

    async def complete(self, messages: Sequence[Message]) -> Reply:
        text = self._script(messages)
        characters = sum(len(message["content"]) for message in messages) + len(text)
        return Reply(text, characters // CHARACTERS_PER_TOKEN)


def example_reply(messages: Sequence[Message]) -> str:
    """The reply's example that ends every request: right in form, with values from the middle."""
    return messages[-1]["content"].splitlines()[-1]
