"""A Dockerfile as the steps that make a folder, for where there is no Docker engine to build it.

What a folder can have is kept: files that are copied, commands, variables, the working directory.
The base image is not: commands find what the sandbox has. What cannot be done so is refused by
`NotDone`. Not here: running the steps (`harbor_tasks.py`).
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

IGNORED = frozenset(
    {"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL"}
    | {"USER", "VOLUME"}
)
"""Ignored instructions: they say how a container runs later, or what it is called."""
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class NotDone(Exception):
    """Why a Dockerfile cannot be done in a folder."""


@dataclass(frozen=True)
class Doing:
    """One step. Example: Doing("copy", ("data", "/app/data")), Doing("run", ("make",))."""

    kind: Literal["copy", "run"]
    words: tuple[str, ...]
    """The sources of a copy and its target, an absolute path; or the command of a run."""
    workdir: str
    """The folder where it is done, an absolute path."""


@dataclass
class Recipe:
    """The content of a Dockerfile."""

    doings: list[Doing] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"


def read_dockerfile(text: str) -> Recipe:
    """The steps in order. Raises NotDone for what a folder cannot have."""
    try:
        return _recipe(text)
    except ValueError as error:
        raise NotDone(f"its Dockerfile cannot be read: {error}") from None


def _recipe(text: str) -> Recipe:
    recipe, stages = Recipe(), 0
    for name, rest in _instructions(text):
        if name == "FROM":
            stages += 1
            if stages > 1:
                raise NotDone("its Dockerfile has several stages")
        elif name in ("ENV", "ARG"):
            recipe.variables |= _assigned(rest, recipe.variables)
        elif name == "WORKDIR":
            recipe.workdir = _absolute(_filled(rest, recipe.variables), recipe.workdir)
        elif name in ("COPY", "ADD"):
            recipe.doings.append(_copy(rest, recipe))
        elif name == "RUN":
            recipe.doings.append(Doing("run", (_command(rest),), recipe.workdir))
        elif name not in IGNORED:
            raise NotDone(f"its Dockerfile has {name}")
    return recipe


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = (line.rstrip() for line in text.splitlines())
    # As Docker does: comments and empty lines do not end an instruction that goes on.
    kept = [line for line in lines if line and not line.lstrip().startswith("#")]
    whole = "\n".join(kept).removesuffix("\\").replace("\\\n", " ")
    for line in whole.splitlines():
        name, _, rest = line.strip().partition(" ")
        if re.search(r"<<-?['\"]?\w", rest) and name.upper() in ("RUN", "COPY", "ADD"):
            raise NotDone("its Dockerfile has a here-document")
        yield name.upper(), rest.strip()


def _assigned(rest: str, known: dict[str, str]) -> dict[str, str]:
    """`A=1 B="2 3"`, or the old `A 1`; an ARG without a value has none."""
    words = shlex.split(rest)
    if words and "=" not in words[0]:
        return {words[0]: _filled(" ".join(words[1:]), known)} if words[1:] else {}
    pairs = (word.partition("=") for word in words)
    return {name: _filled(value, known) for name, _, value in pairs}


def _copy(rest: str, recipe: Recipe) -> Doing:
    words = _listed(rest) or shlex.split(rest)
    if any(word.startswith("--from") for word in words):
        raise NotDone("its Dockerfile copies from another image")
    words = [_filled(word, recipe.variables) for word in words if not word.startswith("--")]
    if len(words) < 2 or any("://" in word for word in words):
        raise NotDone("its Dockerfile fetches files")
    target = _absolute(words[-1], recipe.workdir)
    several = words[-1].endswith(("/", ".")) or len(words) > 2
    return Doing("copy", (*words[:-1], target + "/" if several else target), recipe.workdir)


def _command(rest: str) -> str:
    while rest.startswith("--"):
        rest = rest.partition(" ")[2].lstrip()
    words = _listed(rest)
    return shlex.join(words) if words else rest


def _listed(rest: str) -> list[str]:
    """The words of a JSON list; none for a shell's command, `[ -d x ] || y` for example."""
    try:
        found = json.loads(rest) if rest.startswith("[") else []
    except (json.JSONDecodeError, RecursionError):
        return []
    return [str(one) for one in found]


def _filled(text: str, known: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda found: known.get(found[1] or found[2], ""), text)


def _absolute(path: str, workdir: str) -> str:
    """A path in plain form, from the root.

    >>> _absolute("./data/", "/app")
    '/app/data'
    """
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{workdir}/{path}").split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)
