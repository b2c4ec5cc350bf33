"""A second reading of the built-in questions, from their English and the cards alone.

It shares no code with the builder: facts come from the cards by regular expressions, and a question
is taken apart as a person would, so that its answers can be compared with the task's.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

CARDS = [
    (r"Class (\w+)\. Module: ([\w.]+)\. Base: (.+)\.", "class"),
    (r"Function (\w+)\. Module: ([\w.]+)\.", "function"),
    (r"Method (\w+)\. Class: (\w+)\.", "method"),
]
PHRASES = [
    (r"the (?:one|only) method of (.+)", "method of"),
    (r"the one method that (.+) has", "method of"),
    (r"the module (?:of|that defines) (.+)", "module of"),
    (r"the class with the methods (\w+) and (\w+)", "both methods"),
    (r"the class that (?:has|defines) (.+)", "class of"),
    (r"the (?:base|parent) class of (.+)", "base of"),
    (r"the (?:only function in|one function of) (.+)", "function of"),
    (r"the only subclass of (.+)", "derived from"),
    (r"the one class derived from (.+)", "derived from"),
    (r"the (?:only class in|one class of) (.+)", "class in"),
]
QUESTIONS = [
    (r"Which class has the methods (\w+) and (\w+)\?", "both methods"),
    (r"Which class has both (\w+) and (\w+) as methods\?", "both methods"),
    (r"Which class has the base classes (\w+) and (\w+)\?", "both bases"),
    (r"Which class is derived from both (\w+) and (\w+)\?", "both bases"),
    (
        r"Which class in (the module .+) (?:has the base class|is derived from) (\w+)\?",
        "in and base",
    ),
    (r"Which module defines (.+)\?", "module of"),
    (r"In which module is (.+)\?", "module of"),
    (r"Which class (?:has|defines) (.+)\?", "class of"),
    (r"What is the base class of (.+)\?", "base of"),
    (r"Which class is the base of (.+)\?", "base of"),
    (r"What is the only function in (.+)\?", "function of"),
    (r"Which function is in (.+)\?", "function of"),
    (r"What is the only class in (.+)\?", "class in"),
    (r"Which class is in (.+)\?", "class in"),
    (r"What is the only method of (.+)\?", "method of"),
    (r"Which method does (.+) have\?", "method of"),
    (r"What is the only subclass of (.+)\?", "derived from"),
    (r"Which class is derived from (.+)\?", "derived from"),
]
KINDS = {"method of": "method", "module of": "module", "function of": "function"}
Things = tuple[str, frozenset[str]]


class Reader:
    """Answers a question from cards; names are compared without regard to case."""

    def __init__(self, cards: Iterable[str]) -> None:
        self.facts: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(
            lambda: defaultdict(set)
        )
        self.classes: list[tuple[str, str, frozenset[str]]] = []
        for card in cards:
            for pattern, kind in CARDS:
                match = re.fullmatch(pattern, card)
                if match:
                    self._add(kind, *match.groups())

    def answers(self, question: str) -> frozenset[str]:
        """Every answer, lower-cased."""
        return self._read(question, QUESTIONS)[1]

    def _add(self, kind: str, name: str, place: str, bases: str = "") -> None:
        name, place = name.lower(), place.lower()
        if kind == "method":
            self.facts["class of", "method"][name].add(place)
            self.facts["method of", "class"][place].add(name)
            return
        self.facts["module of", kind][name].add(place)
        self.facts["class in" if kind == "class" else "function of", "module"][place].add(name)
        if kind == "class":
            own = frozenset(bases.lower().split(", "))
            self.classes.append((name, place, own))
            for base in own:
                self.facts["base of", "class"][name].add(base)
                self.facts["derived from", "class"][base].add(name)

    def _read(self, text: str, patterns: list[tuple[str, str]]) -> Things:
        for pattern, relation in patterns:
            match = re.fullmatch(pattern, text)
            if match:
                return self._apply(relation, *match.groups())
        match = re.fullmatch(r"the (module|class|function|method) ([\w.]+)", text)
        assert match, text
        return match[1], frozenset({match[2].lower()})

    def _apply(self, relation: str, first: str, second: str = "") -> Things:
        if relation == "both methods":
            owners = self.facts["class of", "method"]
            return "class", frozenset(owners[first.lower()] & owners[second.lower()])
        if relation == "both bases":
            wanted = {first.lower(), second.lower()}
            return "class", frozenset(name for name, _, own in self.classes if wanted <= own)
        kind, names = self._read(first, PHRASES)
        if relation == "in and base":
            found = (
                name
                for name, place, own in self.classes
                if place in names and second.lower() in own
            )
            return "class", frozenset(found)
        found_sets = (self.facts[relation, kind][name] for name in names)
        return KINDS.get(relation, "class"), frozenset().union(*found_sets)
