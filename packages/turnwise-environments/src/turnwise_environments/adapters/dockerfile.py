"""A Dockerfile as the steps that make a folder, for where there is no Docker engine to build it.

What a folder can have is kept: files that are copied, commands, variables, the working directory.
The base image is not: commands find what the sandbox has. What cannot be done so is refused by
`UnsupportedDockerfile`.
"""

import json
import posixpath
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
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")
_ARCHIVE = re.compile(r"\.(?:tar(?:\.\w+)?|tgz|tbz2?|txz)\b")


class UnsupportedDockerfile(Exception):
    """Why a Dockerfile cannot be done in a folder."""


@dataclass(frozen=True)
class BuildStep:
    """One step. Example: BuildStep("copy", ("data", "/app/data")), BuildStep("run", ("make",))."""

    kind: Literal["copy", "run"]
    words: tuple[str, ...]
    """The sources of a copy and its target, an absolute path; or the command of a run."""
    workdir: str
    """The folder where it is done, an absolute path."""


@dataclass
class Dockerfile:
    """The content of a Dockerfile."""

    steps: list[BuildStep] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"


def read_dockerfile(text: str) -> Dockerfile:
    """The steps in order. Raises UnsupportedDockerfile for what a folder cannot have."""
    try:
        return _parsed(text)
    except ValueError as error:
        raise UnsupportedDockerfile(f"its Dockerfile cannot be read: {error}") from None


def _parsed(text: str) -> Dockerfile:
    dockerfile, stages = Dockerfile(), 0
    for name, rest in _instructions(text):
        if name == "FROM":
            stages += 1
            if stages > 1:
                raise UnsupportedDockerfile("its Dockerfile has several stages")
        elif name in ("ENV", "ARG"):
            dockerfile.variables |= _assigned(rest, dockerfile.variables)
        elif name == "WORKDIR":
            dockerfile.workdir = _absolute(_filled(rest, dockerfile.variables), dockerfile.workdir)
        elif name == "ADD" and _ARCHIVE.search(rest):
            raise UnsupportedDockerfile("its Dockerfile unpacks an archive")
        elif name in ("COPY", "ADD"):
            dockerfile.steps.append(_copy(rest, dockerfile))
        elif name == "RUN":
            dockerfile.steps.append(BuildStep("run", (_command(rest),), dockerfile.workdir))
        elif name not in IGNORED:
            raise UnsupportedDockerfile(f"its Dockerfile has {name}")
    return dockerfile


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = (line.rstrip() for line in text.splitlines())
    # As Docker does: comments and empty lines do not end an instruction that goes on.
    kept = [line for line in lines if line and not line.lstrip().startswith("#")]
    whole = "\n".join(kept).removesuffix("\\").replace("\\\n", " ")
    for line in whole.splitlines():
        name, rest = [*line.split(maxsplit=1), ""][:2]
        if re.search(r"<<-?['\"]?\w", rest) and name.upper() in ("RUN", "COPY", "ADD"):
            raise UnsupportedDockerfile("its Dockerfile has a here-document")
        yield name.upper(), rest.strip()


def _assigned(rest: str, known: dict[str, str]) -> dict[str, str]:
    """`A=1 B="2 3"`, or the old `A 1`; an ARG without a value has none."""
    words = shlex.split(rest)
    if words and "=" not in words[0]:
        return {words[0]: _filled(" ".join(words[1:]), known)} if words[1:] else {}
    pairs = (word.partition("=") for word in words)
    return {name: _filled(value, known) for name, _, value in pairs}


def _copy(rest: str, dockerfile: Dockerfile) -> BuildStep:
    words = _listed(rest) or shlex.split(rest)
    if any(word.startswith("--from") for word in words):
        raise UnsupportedDockerfile("its Dockerfile copies from another image")
    words = [_filled(word, dockerfile.variables) for word in words if not word.startswith("--")]
    if len(words) < 2 or any("://" in word for word in words):
        raise UnsupportedDockerfile("its Dockerfile fetches files")
    target = _absolute(words[-1], dockerfile.workdir)
    # A working directory is there already: a file that is copied to it goes into it.
    several = words[-1].endswith(("/", ".")) or len(words) > 2 or target == dockerfile.workdir
    return BuildStep("copy", (*words[:-1], target + "/" if several else target), dockerfile.workdir)


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
    # An image's PATH is not known here: whoever runs a command puts its own in its place.
    values = {"PATH": "$PATH", **known}
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[3]) or found[2] or "", text)


def _absolute(path: str, workdir: str) -> str:
    """A path in plain form, from the root.

    >>> _absolute("./data/", "/app")
    '/app/data'
    """
    return "/" + posixpath.normpath(posixpath.join(workdir, path)).lstrip("/")
