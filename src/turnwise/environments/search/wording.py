"""English for chains of relations: short questions, a few wordings for each relation.

The wording is chosen by a hash of the name that is asked about, so that it says nothing about the
answer and is the same every time.
"""

from collections.abc import Sequence

from turnwise.environments.search.graph import Relation
from turnwise.seeds import derive

_NOUNS = {
    ("module", "function", False): ("the module of {}", "the module that defines {}"),
    ("module", "class", False): ("the module of {}", "the module that defines {}"),
    ("class", "method", False): ("the class that has {}", "the class that defines {}"),
    ("base", "class", False): ("the base class of {}", "the parent class of {}"),
    ("module", "function", True): ("the only function in {}", "the one function of {}"),
    ("module", "class", True): ("the only class in {}", "the one class of {}"),
    ("class", "method", True): ("the only method of {}", "the one method that {} has"),
    ("base", "class", True): ("the only subclass of {}", "the one class derived from {}"),
}
_QUESTIONS = {
    ("module", "function", False): ("Which module defines {}?", "In which module is {}?"),
    ("module", "class", False): ("Which module defines {}?", "In which module is {}?"),
    ("class", "method", False): ("Which class has {}?", "Which class defines {}?"),
    ("base", "class", False): ("What is the base class of {}?", "Which class is the base of {}?"),
    ("module", "function", True): ("What is the only function in {}?", "Which function is in {}?"),
    ("module", "class", True): ("What is the only class in {}?", "Which class is in {}?"),
    ("class", "method", True): ("What is the only method of {}?", "Which method does {} have?"),
    ("base", "class", True): (
        "What is the only subclass of {}?",
        "Which class is derived from {}?",
    ),
}
_INTERSECTIONS = {
    "module": ("Which class in {} has the base class {}?", "Which class in {} is derived from {}?"),
    "base": (
        "Which class has the base classes {} and {}?",
        "Which class is derived from both {} and {}?",
    ),
    "method": (
        "Which class has the methods {} and {}?",
        "Which class has both {} and {} as methods?",
    ),
}


def chain_question(relations: Sequence[Relation], name: str) -> str:
    """The question that follows `relations` one after the other, from `name`.

    Example: base and then module, from "TarInfo": "Which module defines the base class of the
    class TarInfo?"
    """
    return last_question(relations[-1], describe(relations[:-1], relations[0].start, name))


def last_question(relation: Relation, phrase: str) -> str:
    """The question for what a relation leads to from a thing that `phrase` describes."""
    return _pick(_QUESTIONS[_key(relation)], phrase, 0).format(phrase)


def describe(relations: Sequence[Relation], kind: str, name: str) -> str:
    """A phrase for the target of `relations` from the `kind` called `name`; without relations, for
    the thing itself.

    Example: "the base class of the class TarInfo".
    """
    phrase = f"the {kind} {name}"
    for depth, relation in enumerate(relations):
        phrase = _pick(_NOUNS[_key(relation)], name, depth).format(phrase)
    return phrase


def intersection_question(kind: str, first: str, second: str) -> str:
    """The question for the class that meets two conditions. `kind` says which: "module" for a
    module, as `describe` words it, and a base class; "base" for two base classes, "method" for two
    methods."""
    return _pick(_INTERSECTIONS[kind], f"{first} {second}", 0).format(first, second)


def wanted(relation: Relation, name: str) -> str:
    """Describe what a relation leads to from a name, in the words of the labels of cards.

    Example: "Base of TarInfo"; of the inverse, "Class with Base TarInfo".
    """
    if relation.inverse:
        return wanted_with((relation, name))
    return f"{relation.fact.capitalize()} of {name}"


def wanted_with(*conditions: tuple[Relation, str]) -> str:
    """The thing that states each of some relations to a name.

    Example: "Class with Module tarfile and Base object".
    """
    fields = " and ".join(f"{relation.fact.capitalize()} {name}" for relation, name in conditions)
    return f"{conditions[0][0].subject.capitalize()} with {fields}"


def _key(relation: Relation) -> tuple[str, str, bool]:
    return relation.fact, relation.subject, relation.inverse


def _pick(forms: Sequence[str], name: str, depth: int) -> str:
    return forms[derive("wording", name, depth) % len(forms)]
