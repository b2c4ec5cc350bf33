"""Slots: the places where an agent of an environment says what is judged, an answer or a call."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from turnwise.types import Action, Task
from turnwise_trust.audit.scripts import Script, calling, is_paid, number_of, plain, said
from turnwise_trust.audit.subject import Subject

DECOYS = 3
RARE = 0.1
"""The largest share of tasks that may have an answer in common for it to tell of its task."""
WORDS = ("alpha", "beta", "gamma", "delta")


@dataclass(frozen=True, eq=False)
class Slot:
    """A place for a text, and what the oracle writes there."""

    subject: Subject
    tool: str = ""
    """The tool whose only argument it is; empty for the answer."""
    argument: str = ""
    _decoys: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def right(self) -> Mapping[str, str]:
        """The text that the oracle writes there, by task id. A tool that it calls before as well
        takes commands, which may be said in other words: no answer."""
        if not self.tool:
            return self.subject.answers
        calls = {
            name: [call for action in actions for call in action.calls]
            for name, actions in self.subject.oracle.items()
            if actions and len(actions[-1].calls) == 1
        }
        return {
            name: str(made[-1].arguments[self.argument])
            for name, made in calls.items()
            if [n for n, call in enumerate(made, 1) if call.name == self.tool] == [len(made)]
            and self.argument in made[-1].arguments
        }

    def before(self, task: Task) -> Script:
        """The oracle's actions before it writes there."""
        actions = self.subject.oracle.get(task.id, [])
        return actions[:-1] if task.id in self.right else actions

    def write(self, text: str) -> Action:
        """The action that writes a text there."""
        return calling(self.tool, **{self.argument: text}) if self.tool else said(text)

    @cached_property
    def telling(self) -> dict[str, str]:
        """The right texts that few tasks share: others say nothing of a task, as "done" does."""
        counts = Counter(map(plain, self.right.values()))
        most = max(1.0, RARE * len(self.right))
        if len(counts) <= 1 / RARE and len(self.right) > 1:
            most = len(self.right) - 1  # options: yes or no, A to D
        return {name: text for name, text in self.right.items() if counts[plain(text)] <= most}

    def decoys(self, task: Task) -> Sequence[str]:
        """Wrong texts of the kind of the right one: right ones of other tasks, or near numbers.
        None where one of them is paid too, for then the slot does not decide."""
        if task.id not in self._decoys:
            wrong = self.wrong(task) if task.id in self.telling else []
            before = self.before(task)
            paid = (is_paid(self.subject, task, [*before, self.write(one)]) for one in wrong)
            self._decoys[task.id] = [] if any(paid) else wrong
        return self._decoys[task.id]

    def wrong(self, task: Task) -> list[str]:
        right = self.right[task.id]
        others = dict.fromkeys(
            text for _, text in sorted(self.right.items()) if not _overlap(text, right)
        )
        number = number_of(right)
        made = [f"{number + n:.15g}" for n in (1, 7, 30)] if number is not None else WORDS
        chosen = _turned([*others], task.id)[:DECOYS]
        return [*chosen, *(one for one in made if one not in chosen)][:DECOYS]


@lru_cache(maxsize=1)
def slots(subject: Subject) -> Sequence[Slot]:
    """The answer, and each tool of one argument with which the oracle ends."""
    found = [Slot(subject)]
    for tool in subject.tools:
        properties = tool.schema["parameters"].get("properties", {})
        if len(properties) != 1:
            continue
        ((argument, schema),) = properties.items()
        slot = Slot(subject, tool.name, argument)
        if schema.get("type") == "string" and "enum" not in schema and len(slot.telling) > 1:
            found.append(slot)
    return found


def _turned(texts: Sequence[str], name: str) -> list[str]:
    """The list from another place on for each task, the same each time."""
    start = sum(map(ord, name)) % len(texts) if texts else 0
    return [*texts[start:], *texts[:start]]


def _overlap(one: str, other: str) -> bool:
    return plain(one) in plain(other) or plain(other) in plain(one)
