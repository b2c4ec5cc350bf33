"""The contents read out of a Python module: names, signatures and first paragraphs; no documents
yet."""

import inspect
from dataclasses import dataclass, field

SUMMARY_WORDS = 60
"""Longer first paragraphs are cut."""


@dataclass(frozen=True)
class Definition:
    """A class, function or method. Example: Definition("chdir", "(path)", "Change the ...")."""

    name: str
    signature: str
    """The arguments in parentheses; empty where they are not known."""
    summary: str
    """First paragraph of the docstring, on one line; may be empty."""
    is_class: bool = False
    bases: tuple[str, ...] = ()
    """Bare names of the base classes, `object` where none is written."""
    methods: tuple["Definition", ...] = ()
    """Methods in alphabetical order."""


@dataclass(frozen=True)
class Module:
    """One module as it is written, re-exports not yet resolved."""

    name: str
    summary: str
    definitions: dict[str, Definition]
    imports: tuple[tuple[str, str], ...] = ()
    """(module, name) for each `from module import name`, in order; the name may be `*`."""
    exported: frozenset[str] | None = field(default=None)
    """`__all__` as far as it is written as a plain list; None when there is none."""

    @property
    def public(self) -> bool:
        """Whether people are meant to import it: no part of its name starts with `_`."""
        return not any(part.startswith("_") for part in self.name.split("."))


def is_public(name: str) -> bool:
    """Whether a class, function or method has a name for public use."""
    return not name.startswith("_")


def first_paragraph(docstring: str | None) -> str:
    """The first paragraph of a docstring on one line, at most SUMMARY_WORDS words."""
    paragraph = inspect.cleandoc(docstring or "").strip().partition("\n\n")[0]
    return " ".join(paragraph.split()[:SUMMARY_WORDS])
