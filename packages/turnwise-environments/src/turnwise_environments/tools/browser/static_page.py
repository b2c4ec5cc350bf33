"""A browser without a screen for plain pages: links, forms, sections that open; no script.

What a page without scripts does in Chromium it does here, in about a millisecond: the same numbers,
the same words, the same requests to the site (`tests/browser` compares them).
"""

from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit, urlunsplit

from turnwise.errors import ToolError
from turnwise_environments.tools.browser.reading import (
    Node,
    View,
    check_typed,
    options_of,
    role_of,
    text_of,
    typed,
    view_of,
)
from turnwise_environments.tools.browser.sites import Response, Site, request_of

VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "wbr")
UNSEEN = ("head", "script", "style", "template", "noscript")
MOST_REDIRECTS = 20


class StaticPage:
    """A page of one site, and the way that led to it."""

    lost = False
    """A plain page has no process that could die."""

    def __init__(self, site: Site, url: str) -> None:
        """`url` is the address of the first page, whole."""
        self._site = site
        self._history: list[str] = []
        self._title, self._root = "", Node("html")
        self._view: View | None = None
        self._go(url)

    def do(self, operation: str, *arguments: Any) -> None:
        """click(number), fill(number, text), select(number, option), press(number, key), back(),
        scroll(direction), read(). Raises ToolError for what cannot be done."""
        operations: dict[str, Callable[..., None]] = {
            "click": self._click,
            "fill": self._fill,
            "select": self._select,
            "press": self._press,
            "back": self._back,
            "scroll": lambda direction: None,
            "read": lambda: None,
        }
        operations[operation](*arguments)
        self._view = None

    def look(self) -> View:
        if self._view is None:
            self._view = view_of(self._title, self._history[-1], _visible(self._root))
        return self._view

    async def act(self, operation: str, *arguments: Any) -> None:
        """Do an operation, as `do`."""
        self.do(operation, *arguments)

    async def view(self) -> View:
        return self.look()

    async def close(self) -> None:
        """There is nothing to release."""

    def _node(self, number: int) -> tuple[str, Node]:
        element = self.look().element(number)
        if "disabled" in element.node.attributes:
            raise ToolError(f"element {number} is disabled")
        place = element.node.place
        return element.role, next(node for node in self._root.walk() if node.place == place)

    def _click(self, number: int) -> None:
        role, node = self._node(number)
        if role == "link":
            self._follow(node.attributes["href"])
        elif role == "section":
            details = self._parent(node, "details")
            if details is not None:
                _toggle(details, "open")
        elif role == "checkbox":
            _toggle(node, "checked")
        elif role == "radio":
            self._check_radio(node)
        elif role == "button" and node.attributes.get("type", "submit") in ("submit", "image"):
            self._submit(node, node)

    def _fill(self, number: int, text: str) -> None:
        role, node = self._node(number)
        check_typed(role, number, text)
        node.attributes["value"] = typed(node, text)

    def _select(self, number: int, option: str) -> None:
        _, node = self._node(number)
        chosen = chosen_option(node, number, option)
        for one in options_of(node):
            one.attributes.pop("selected", None)
        options_of(node)[chosen].attributes["selected"] = ""

    def _press(self, number: int, key: str) -> None:
        if key != "Enter":
            return
        role, node = self._node(number)
        if role in ("button", "link", "section"):
            self._click(number)
        elif node.tag == "input":
            form = self._parent(node, "form")
            buttons = [one for one in form.walk() if _submits(one)] if form is not None else []
            if buttons:
                self._submit(node, buttons[0])

    def _back(self) -> None:
        if len(self._history) < 2:
            raise ToolError("there is no page before this one")
        self._history.pop()
        self._load(self._history.pop())

    def _follow(self, href: str) -> None:
        url = urljoin(self._history[-1], href)
        host = urlsplit(url).netloc
        if host != urlsplit(self._history[-1]).netloc:
            raise ToolError(f"{host} is not allowed: nothing outside is")
        self._go(url)

    def _go(self, url: str) -> None:
        """A page that is asked for again takes its own place in the history, as in browsers."""
        if self._history and self._history[-1] == url:
            self._history.pop()
        self._load(url)

    def _load(self, url: str, response: Response | None = None) -> None:
        for _ in range(MOST_REDIRECTS):
            if response is not None and response.location:
                url = urljoin(url, response.location)
            elif response is not None:
                break
            response = self._site.handle(request_of("GET", url))
        else:
            raise RuntimeError(f"{url} leads to more than {MOST_REDIRECTS} others")
        self._history.append(url)
        self._title, self._root = parsed(response.html)

    def _submit(self, node: Node, button: Node) -> None:
        form = self._parent(node, "form")
        if form is None:
            return
        body = urlencode(_sent(form, button))
        target = urljoin(self._history[-1], form.attributes.get("action", ""))
        if form.attributes.get("method", "get").lower() == "post":
            body = body.replace("%0A", "%0D%0A")
            self._load(target, self._site.handle(request_of("POST", target, body)))
        else:
            self._go(urlunsplit(urlsplit(target)._replace(query=body, fragment="")))

    def _check_radio(self, node: Node) -> None:
        name, around = node.attributes.get("name"), self._parent(node, "form") or self._root
        for one in around.walk():
            if role_of(one) == "radio" and one.attributes.get("name") == name:
                one.attributes.pop("checked", None)
        node.attributes["checked"] = ""

    def _parent(self, node: Node, tag: str) -> Node | None:
        found = (one for one in self._root.walk() if one.tag == tag)
        around = [one for one in found if any(inner is node for inner in one.walk())]
        return around[-1] if around else None


def chosen_option(select: Node, number: int, option: str) -> int:
    """The place of an option by its text. Raises ToolError."""
    if select.tag != "select":
        raise ToolError(f"element {number} is no list to select from")
    names = [text_of(one) for one in options_of(select)]
    wanted = " ".join(option.split())
    if wanted not in names:
        raise ToolError(f"there is no option {option!r}; options: {', '.join(names)}")
    return names.index(wanted)


def parsed(html: str) -> tuple[str, Node]:
    parser = _Parser()
    parser.feed(html)
    parser.close()
    for place, node in enumerate(parser.root.walk()):
        node.place = place
        if node.tag == "select":
            options = options_of(node)
            if options and not any("selected" in one.attributes for one in options):
                options[0].attributes["selected"] = ""
        elif node.tag == "textarea":
            node.attributes["value"] = "".join(str(child) for child in node.children)
            node.children = []
        elif node.tag == "input":
            node.attributes.setdefault("value", "")
    titles = [text_of(node) for node in parser.root.walk() if node.tag == "title"]
    return (titles or [""])[0], parser.root


class _Parser(HTMLParser):
    """Builds the tree of a page whose tags are all closed."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Node("html")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "html":
            return
        node = Node(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(node)
        if tag not in VOID:
            self._open.append(node)

    def handle_endtag(self, tag: str) -> None:
        if tag != "html" and tag not in VOID:
            closed = self._open.pop()
            if closed.tag != tag:
                raise ValueError(f"a page closes {tag} where {closed.tag} is open")

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def _visible(node: Node) -> Node:
    """A copy without what is not shown. Values are shared."""
    children: Sequence[Node | str] = node.children
    if node.tag == "details" and "open" not in node.attributes:
        nodes = (one for one in children if isinstance(one, Node))
        children = [one for one in nodes if one.tag == "summary"][:1]
    kept: list[Node | str] = [
        _visible(child) if isinstance(child, Node) else child
        for child in children
        if isinstance(child, str) or (child.tag not in UNSEEN and "hidden" not in child.attributes)
    ]
    attributes = dict(node.attributes)
    if node.tag == "summary":
        attributes.pop("open", None)
    made = Node(node.tag, attributes, kept, node.place)
    if node.tag == "details":
        for child in kept:
            if isinstance(child, Node) and child.tag == "summary" and "open" in attributes:
                child.attributes["open"] = ""
    return made


def _sent(form: Node, button: Node) -> list[tuple[str, str]]:
    found = []
    for node in form.walk():
        given, role = node.attributes, role_of(node)
        if "name" not in given or "disabled" in given:
            continue
        if node.tag == "select":
            chosen = [one for one in options_of(node) if "selected" in one.attributes]
            found += [(given["name"], one.attributes.get("value", text_of(one))) for one in chosen]
        elif role == "button":
            found += [(given["name"], given.get("value", ""))] if node is button else []
        elif role in ("checkbox", "radio"):
            found += [(given["name"], given.get("value") or "on")] if "checked" in given else []
        elif node.tag in ("input", "textarea"):
            found.append((given["name"], given.get("value", "")))
    return found


def _submits(node: Node) -> bool:
    kind = node.attributes.get("type", "submit" if node.tag == "button" else "text")
    return node.tag in ("button", "input") and kind in ("submit", "image")


def _toggle(node: Node, attribute: str) -> None:
    if attribute in node.attributes:
        del node.attributes[attribute]
    else:
        node.attributes[attribute] = ""
