"""api.md: every public name with its signature, its docstring and its members."""

import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

import turnwise
from scripts.reference.text import attribute_docs, paragraph
from turnwise.learning.learner import Learner

GROUPS = {
    "Runs": "load_recipe train resume evaluate open_run Run Recipe",
    "The steps of RL": "build make_environment Components sample_groups make_learner estimate "
    "load_weights close PolicyLearner",
    "An environment of one's own": "Environment tool ToolError Task Action ToolCall Observation "
    "Step Verdict",
    "Records": "Tokens Source Trajectory Group Outcome",
}
"""The public names, in the order in which one meets them."""
PROTOCOLS = {turnwise.PolicyLearner: Learner}
"""The protocol that says what a class's methods do."""
BARE = re.compile("(`[^`]+`(, )?)+")
"""Members that have no more than a name and a type: they share a line."""


def api_page() -> str:
    """Every public name: its signature, its docstring, its members."""
    text = (
        "# Public API\n\n`import turnwise` offers these names, and they are all of the public API; "
        f"parts of one's own build on {', '.join(f'`{name}`' for name in turnwise.SEAMS)} besides "
        "(`turnwise.SEAMS`). What is imported from anywhere else may change. Importing loads no "
        "torch. Functions may be called in a notebook's cell, where an event loop runs already, "
        "without `await`. Ctrl-C ends what they do, and `train` saves first.\n\nIn the examples "
        "`recipe` is a recipe's file and `path` a folder; one example goes on with what another "
        "one made.\n"
    )
    for group, names in GROUPS.items():
        text += f"\n## {group}\n"
        text += "".join(name_text(name, getattr(turnwise, name)) for name in names.split())
    return text


def name_text(name: str, value: Any) -> str:
    """The entry of a public name."""
    text = f"\n### {name}\n\n"
    if not inspect.isclass(value):
        text += f"```python\n{name}{signature(value)}\n```\n\n"
    text += docstring(inspect.getdoc(value) or "")
    if inspect.isclass(value) and not issubclass(value, BaseModel):
        members: list[str] = []
        for each in member_texts(value):
            if members and BARE.fullmatch(members[-1]) and BARE.fullmatch(each):
                members[-1] += f", {each}"
            else:
                members.append(each)
        text += "".join(["\n", *(f"- {each}\n" for each in members)]) if members else ""
    return text


def signature(function: Callable[..., Any]) -> str:
    """A signature as one reads it, on several lines where one is too long."""
    text = short(str(inspect.signature(function))).replace("<factory>", "...")
    if len(text) <= 80:
        return text
    inside, _, result = text[1:].rpartition(")")
    lines, depth = [""], 0
    for character in inside:
        depth += (character in "[(") - (character in "])")
        if character == "," and not depth:
            lines.append("")
        else:
            lines[-1] += character
    return "(\n" + "".join(f"    {line.strip()},\n" for line in lines) + f"){result}"


def short(text: str) -> str:
    """Annotations without the modules of their names, quotes around them, and type variables' ~;
    arrays by their type alone."""
    text = re.sub(r"""(^|: |-> )(['"])(.*?)\2""", r"\1\3", text).replace("~", "")
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=\w)", "", text)
    return re.sub(r"\bndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]", r"NDArray[\1]", text)


def docstring(text: str) -> str:
    """A docstring in Markdown: paragraphs, arguments as a list, examples in blocks."""
    prose, example, rest = re.sub(r"(?m)^>>>", "\n>>>", text, count=1).partition("\n>>>")
    shown = [_paragraphs(each) for each in prose.strip("\n").split("\n\n")]
    if example:
        shown.append(f"```pycon\n>>>{rest.rstrip()}\n```")
    return "\n\n".join(shown) + "\n"


def _paragraphs(part: str) -> str:
    if part.startswith("Args:"):
        items = re.split(r"\n    (?=\w+: )", part)[1:]
        return "\n".join(f"- `{' '.join(each.split())}".replace(": ", "`: ", 1) for each in items)
    if part.startswith("    "):
        return f"```text\n{textwrap.dedent(part)}\n```"
    return " ".join(part.split())


def member_texts(cls: type) -> Iterator[str]:
    """A line on each public field, property and method that the class itself has."""
    docs = attribute_docs(cls)
    types = inspect.get_annotations(cls)
    for name in [each for each in types if not each.startswith("_")]:
        kind = short(inspect.formatannotation(types[name]))
        yield f"`{name}: {kind}`" + (f": {docs[name]}" if name in docs else "")
    for name, member in vars(cls).items():
        if name.startswith("_") or name in types:
            continue
        if isinstance(member, enum.Enum):
            yield f"`{name} = {member.value!r}`" + (f": {docs[name]}" if name in docs else "")
        elif isinstance(member, property):
            yield f"`{name}`: {paragraph(member.__doc__)}"
        elif inspect.isfunction(member) or isinstance(member, classmethod):
            called = str(signature(getattr(cls, name))).replace("\n", "").replace("    ", " ")
            called = re.sub(r"^\( ?self(, ?)?", "(", called).replace(",)", ")")
            said = paragraph(member.__doc__ or getattr(PROTOCOLS.get(cls, cls), name).__doc__)
            yield f"`{name}{called}`" + (f": {said}" if said else "")
