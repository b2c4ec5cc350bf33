"""A page in words: its text, with a number for each element that can be acted on.

    Sign in (http://forms.test/)
    # Sign in
    [1] textbox "User name": "ann"
    [2] password "Password": ""
    [3] button "Sign in"

The same tree gives the same words, whichever reader made it: Chromium (`page.py`) or the reader of
plain pages (`static_page.py`). What can be typed is quoted as JSON has it, so that no typed text
looks like an element. Not here: frames, images without words, where things are on the screen.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from turnwise.errors import ToolError
from turnwise_environments.common import words_in

HEIGHT = 60
"""Lines of a page that are shown at once."""
LONGEST_TEXT = 300
"""Characters of one line of a page."""
INLINE = frozenset(
    words_in(
        "a abbr b bdi bdo button cite code data dfn em i img input kbd mark q s samp select "
        "small span strong sub sup textarea time u var"
    )
)
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
BUTTONS = ("submit", "button", "reset", "image")
TYPED = ("textbox", "password", "date", "time", "number")
ROLES = words_in("button link checkbox radio tab menuitem option switch textbox combobox searchbox")
"""Roles of a page's own elements, by their attribute role."""


@dataclass
class Node:
    """A visible element of a page. Example: Node("a", {"href": "/"}, ["Home"], 3)."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    """Attributes as in HTML; `value`, `checked`, `selected` and `open` as they are now."""
    children: list["Node | str"] = field(default_factory=list)
    place: int = 0
    """Its number among the visible elements, by which the tree's maker finds it again."""

    def walk(self) -> Iterator["Node"]:
        """The node and all below it, in order."""
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.walk()


@dataclass(frozen=True)
class Element:
    """An element that can be acted on. Example: Element("button", "Send", node)."""

    role: str
    name: str
    node: Node


@dataclass(frozen=True)
class View:
    """A page in words. Element number n is `elements[n - 1]`."""

    title: str
    url: str
    lines: tuple[str, ...]
    elements: tuple[Element, ...]

    def element(self, number: int) -> Element:
        """Raises ToolError for a number that the page does not have."""
        if not 1 <= number <= len(self.elements):
            raise ToolError(f"there is no element {number} on this page")
        return self.elements[number - 1]

    def shown(self, top: int = 0, height: int = HEIGHT) -> str:
        """Title and address, and `height` lines from line `top` on, counted from 0."""
        head = f"{self.title} ({self.url})"
        lines = self.lines[top : top + height]
        if len(lines) == len(self.lines):
            return "\n".join([head, *lines])
        place = f"[lines {top + 1} to {top + len(lines)} of {len(self.lines)}: scroll for others]"
        return "\n".join([head, *lines, place])


def view_of(title: str, url: str, root: Node) -> View:
    reader = _Reader(root)
    reader.read(root)
    reader.end_line()
    return View(" ".join(title.split()), url, tuple(reader.lines), tuple(reader.elements))


def role_of(node: Node) -> str:
    """An element's role for an agent that acts on it; empty for one that is only text."""
    given, tag = node.attributes, node.tag
    if tag == "a" and "href" in given:
        return "link"
    if tag == "input":
        return _input_role(given.get("type", "text").lower())
    plain = {"button": "button", "select": "select", "textarea": "textbox", "summary": "section"}
    if tag in plain:
        return plain[tag]
    role = given.get("role", "")
    if role in ROLES:
        return role
    return "textbox" if given.get("contenteditable") in ("", "true") else ""


def _input_role(kind: str) -> str:
    if kind == "hidden":
        return ""
    if kind in BUTTONS:
        return "button"
    kept = ("checkbox", "radio", "password", "date", "time", "number", "file", "range")
    return kind if kind in kept else "textbox"


def typed(node: Node, text: str) -> str:
    """Text as a field takes it: ends of lines are \\n, and spaces in a field of one line."""
    return (" " if node.tag == "input" else "\n").join(text.replace("\r\n", "\n").splitlines())


def check_typed(role: str, number: int, text: str) -> None:
    """Raise ToolError for an element that takes no text, and a date that is none."""
    if role not in TYPED:
        raise ToolError(f"nothing can be typed into element {number}, a {role}")
    if role == "date" and not _is_date(text):
        raise ToolError(f"{text!r} is no date: write it as 2027-03-31")


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return not text


def text_of(node: Node, *, controls: bool = True) -> str:
    """All words below a node, in one line; without those of elements to act on if asked."""
    words: list[str] = []
    for child in node.children:
        if isinstance(child, str):
            words.append(child)
        elif controls or not role_of(child):
            words.append(text_of(child, controls=controls))
        if isinstance(child, Node) and child.tag not in INLINE:
            words.append(" ")
    return " ".join("".join(words).split())


def options_of(select: Node) -> list[Node]:
    return [node for node in select.walk() if node.tag == "option"]


class _Reader:
    """Collects lines; each element that is not part of a line begins one."""

    def __init__(self, root: Node) -> None:
        self.lines: list[str] = []
        self.elements: list[Element] = []
        self._line: list[str] = []
        nodes = list(root.walk())
        controls = {node.place: node for node in nodes if _is_labelled(node)}
        by_id = {node.attributes.get("id", ""): node.place for node in controls.values()}
        by_id.pop("", None)
        self._labels: dict[int, str] = {}
        self._told: set[int] = set()
        for label in (node for node in nodes if node.tag == "label"):
            inside = [node.place for node in label.walk() if node.place in controls]
            wanted = label.attributes.get("for", "")
            place = by_id.get(wanted, inside[0] if inside else None)
            if place is not None:
                self._labels.setdefault(place, text_of(label, controls=False))
                self._told.add(label.place)

    def read(self, node: Node) -> None:
        """Add a node and what is below it."""
        role = role_of(node)
        if node.tag not in INLINE:
            self.end_line(between="" if node.tag not in ("td", "th") else " | ")
        if role and node.attributes.get("type") != "hidden":
            self._add(role, node)
        elif node.tag == "img":
            self._line.append(node.attributes.get("alt", ""))
        else:
            self._read_text(node)
        if node.tag not in INLINE and node.tag not in ("td", "th"):
            self.end_line()

    def end_line(self, between: str = "") -> None:
        """Begin a line; or, `between` two cells of a table, go on behind a bar."""
        line = " ".join("".join(self._line).split())
        if between:
            self._line = [line, between] if line else []
            return
        if line.strip("#- |"):
            cut = f"{line[:LONGEST_TEXT]}..." if len(line) > LONGEST_TEXT else line
            self.lines.append(cut)
        self._line = []

    def _read_text(self, node: Node) -> None:
        if node.tag in HEADINGS:
            self._line.append("# ")
        elif node.tag == "li":
            self._line.append("- ")
        for child in node.children:
            if isinstance(child, Node):
                self.read(child)
            elif node.place not in self._told or node.tag != "label":
                self._line.append(child)

    def _add(self, role: str, node: Node) -> None:
        name = self._name(role, node)
        self.elements.append(Element(role, name, node))
        state = _state(role, node)
        off = " (disabled)" if "disabled" in node.attributes else ""
        self._line.append(f" [{len(self.elements)}] {role} {_quoted(name)}{state}{off} ")

    def _name(self, role: str, node: Node) -> str:
        given = node.attributes
        own = given.get("value", "") if node.tag == "input" and role == "button" else ""
        words = "" if role in TYPED or node.tag == "select" else text_of(node)
        images = " ".join(one.attributes.get("alt", "") for one in node.walk()).strip()
        names = (given.get("aria-label"), self._labels.get(node.place), own, words, images)
        others = (given.get("placeholder"), given.get("title"), given.get("name"))
        return " ".join(next((name for name in (*names, *others) if name), "").split())


def _is_labelled(node: Node) -> bool:
    return node.tag in ("input", "select", "textarea", "button") and bool(role_of(node))


def _state(role: str, node: Node) -> str:
    given = node.attributes
    if role == "password":
        return f": {_quoted('*' * len(given.get('value', '')))}"
    if role in TYPED and (node.tag in ("input", "textarea")):
        return f": {_quoted(given.get('value', ''))}"
    if role in ("checkbox", "radio", "switch"):
        return " (checked)" if "checked" in given else ""
    if node.tag == "select":
        options = options_of(node)
        chosen = [_quoted(text_of(one)) for one in options if "selected" in one.attributes]
        every = ", ".join(_quoted(text_of(one)) for one in options)
        return f": {', '.join(chosen)} of {every}"
    if role == "section":
        return " (open)" if "open" in given else " (closed)"
    return ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def tree_of(data: Sequence[object]) -> Node:
    """The tree that the script of `page.py` gives as [place, tag, attributes, children]."""
    place, tag, attributes, children = data
    assert isinstance(place, int)
    assert isinstance(attributes, Mapping)
    assert isinstance(children, Sequence)
    made = [child if isinstance(child, str) else tree_of(child) for child in children]
    return Node(str(tag), dict(attributes), made, place)
