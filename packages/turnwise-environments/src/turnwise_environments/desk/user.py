"""The scripted user: it gives one fact at a time, and at the end asks one question.

What the agent says decides which: a word such as `code` or `street` brings what is asked for,
anything else the next thing. After the last fact, the user asks the closing question, and what is
said then ends the conversation. Not here: what the user wants (`tasks.py`).
"""

from dataclasses import dataclass, field


@dataclass
class User:
    """The state of a user, all of it: plain data."""

    waiting: list[list[str]] = field(default_factory=list)
    """[word that brings it, what is said], of what was not said yet; the question comes last."""
    asked: bool = False
    """Whether the closing question was asked."""

    def hear(self, said: str) -> str | None:
        """The reply to what the agent says; None ends the conversation."""
        if not self.waiting:
            return None
        words = said.lower()
        asked_for = (i for i, (word, _) in enumerate(self.waiting) if word and word in words)
        _, reply = self.waiting.pop(next(asked_for, 0))
        self.asked = not self.waiting
        return reply
