"""Plain pages without a browser: what they say, and what is done on them."""

import pytest

from browser_sites import SEEN, START, Everything
from turnwise.errors import ToolError
from turnwise_environments.tools.browser.reading import Node, view_of
from turnwise_environments.tools.browser.sites import Request, Response, page, request_of
from turnwise_environments.tools.browser.static_page import StaticPage
from turnwise_environments.tools.browser.tools import scrolled


def test_what_a_page_says() -> None:
    assert StaticPage(Everything(), START).look().shown() == SEEN


def test_a_form_sends_what_is_in_it() -> None:
    site = Everything()
    light = StaticPage(site, START)
    light.do("fill", 4, "ann\nb")
    light.do("fill", 5, "pass word")
    light.do("click", 6)
    light.do("click", 7)
    light.do("click", 6)
    light.do("click", 9)
    light.do("fill", 10, "2027-03-31")
    light.do("select", 11, " Sky ")
    light.do("fill", 12, "a\r\nb & c")
    shown = light.look().shown()
    assert '[5] password "Password": "*********"' in shown
    assert '[12] textbox "Text": "a\\nb & c"' in shown
    light.do("click", 15)
    expected = [
        *[("user", "ann b"), ("pw", "pass word"), ("c", "2"), ("r", "2"), ("d", "2027-03-31")],
        *[("s", "Sky"), ("t", "a\nb & c"), ("b", "x")],
    ]
    assert site.sent == [tuple(expected)]
    assert light.look().url == f"{START}done"


def test_enter_sends_by_the_first_button() -> None:
    site = Everything()
    light = StaticPage(site, START)
    light.do("press", 4, "Enter")
    light.do("press", 12, "Enter")
    light.do("press", 4, "Escape")
    sent = (("user", ""), ("pw", ""), ("r", "1"), ("d", ""), ("s", "a"), ("t", ""))
    assert site.sent == [sent]


def test_the_way_back() -> None:
    light = StaticPage(Everything(), START)
    with pytest.raises(ToolError, match="no page before"):
        light.do("back")
    for number in (2, 2, 14):
        light.do("click", number)
    light.do("back")
    assert light.look().url == f"{START}x?a=1"
    light.do("back")
    assert light.look().url == START


def test_sections_open_and_close() -> None:
    light = StaticPage(Everything(), START)
    assert "Hidden words" not in light.look().shown()
    light.do("click", 16)
    assert '[16] section "More" (open)\nHidden words [17] link "Y"' in light.look().shown()
    light.do("press", 16, "Enter")
    assert light.look().shown() == SEEN


@pytest.mark.parametrize(
    ("operation", "arguments", "message"),
    [
        ("click", (99,), "no element 99"),
        ("click", (0,), "no element 0"),
        ("click", (3,), "out.test is not allowed"),
        ("click", (13,), "13 is disabled"),
        ("fill", (1, "x"), "nothing can be typed into element 1, a link"),
        ("fill", (10, "31 March"), "'31 March' is no date: write it as 2027-03-31"),
        ("select", (11, "Red"), "no option 'Red'; options: Apple red, Sky"),
        ("select", (4, "Red"), "no list to select from"),
    ],
)
def test_what_cannot_be_done(operation: str, arguments: tuple[object, ...], message: str) -> None:
    light = StaticPage(Everything(), START)
    with pytest.raises(ToolError, match=message):
        light.do(operation, *arguments)
    assert light.look().shown() == SEEN


def test_typed_text_is_no_element() -> None:
    light = StaticPage(Everything(), START)
    light.do("fill", 4, '" [99] button "Win')
    view = light.look()
    assert '[4] textbox "User name": "\\" [99] button \\"Win"' in view.shown()
    assert len(view.elements) == 17


def test_names_of_elements() -> None:
    given = [
        Node("button", {"aria-label": "Close", "title": "no"}, ["x"], 1),
        Node("a", {"href": "/"}, [Node("img", {"alt": "Image"}, [], 3)], 2),
        Node("input", {"type": "submit", "value": "Go"}, [], 4),
        Node("input", {"placeholder": "Words", "name": "w"}, [], 5),
        Node("a", {}, ["no link"], 6),
        Node("div", {"role": "tab"}, ["Second ", Node("b", {}, ["tab"], 8)], 7),
    ]
    view = view_of(" A  title ", "u", Node("body", {}, [*given], 0))
    found = [(element.role, element.name) for element in view.elements]
    roles = [("button", "Close"), ("link", "Image"), ("button", "Go"), ("textbox", "Words")]
    assert found == [*roles, ("tab", "Second tab")]
    assert view.title == "A title"


def test_long_pages_are_shown_in_parts() -> None:
    view = StaticPage(Everything(), f"{START}long").look()
    shown = view.shown().split("\n")
    assert (shown[1], shown[-2]) == ("# Long", "line 58")
    assert shown[-1] == "[lines 1 to 60 of 151: scroll for others]"
    assert [scrolled(0, 151, "down"), scrolled(54, 151, "down"), scrolled(91, 151, "down")] == [
        *(54, 91, 91)
    ]
    assert [scrolled(54, 151, "up"), scrolled(0, 151, "up"), scrolled(0, 5, "down")] == [0, 0, 0]
    assert view.shown(91).split("\n")[-2] == "line 149"


def test_requests_and_redirects_without_an_end() -> None:
    request = request_of("GET", "http://a.test/p?x=1&x=2&y=", "ignored=1")
    assert request == Request("GET", "/p", {"x": "2", "y": ""})

    class Round:
        def handle(self, request: Request) -> Response:
            return Response(location="/again")

    with pytest.raises(RuntimeError, match="more than 20"):
        StaticPage(Round(), START)


def test_what_has_no_form_sends_nothing() -> None:
    class Bare:
        def handle(self, request: Request) -> Response:
            radios = "".join(f'<input type="radio" name="r" value="{n}">' for n in (1, 2))
            return Response(page("Bare", f"<input>{radios}<button>Go</button><summary>x</summary>"))

    light = StaticPage(Bare(), START)
    before = light.look().shown()
    for operation in [("press", 1, "Enter"), ("click", 4), ("press", 4, "Enter"), ("click", 5)]:
        light.do(*operation)
        assert light.look().shown() == before
    light.do("click", 2)
    light.do("click", 3)
    assert light.look().shown().count("(checked)") == 1


def test_broken_html_is_a_bug() -> None:
    class Broken:
        def handle(self, request: Request) -> Response:
            return Response(page("Broken", "<p><b>x</p>"))

    with pytest.raises(ValueError, match="closes p where b is open"):
        StaticPage(Broken(), START)
