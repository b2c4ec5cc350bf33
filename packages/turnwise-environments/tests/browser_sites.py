"""A site with everything that a page can have, for the tests of browsers."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from turnwise.errors import ConfigError
from turnwise_environments.tools.browser.chromium import Browser, find_chromium
from turnwise_environments.tools.browser.sites import Request, Response, page

HOST = "forms.test"
START = f"http://{HOST}/"
BODY = """<nav><a href="/">Home</a> <a href="/x?a=1">X</a> <a href="https://out.test/">Out</a></nav>
<form action="/send" method="post" autocomplete="off"><label>User name <input name="user"></label>
<label for="pw">Password</label> <input id="pw" type="password" name="pw">
<label><input type="checkbox" name="c" value="1"> Red</label>
<label><input type="checkbox" name="c" value="2"> Blue</label>
<label><input type="radio" name="r" value="1" checked> One</label>
<label><input type="radio" name="r" value="2"> Two</label>
<label>Day <input type="date" name="d"></label>
<label>Colour <select name="s"><option value="a">Apple red</option><option>Sky</option></select>
</label><label>Text <textarea name="t"></textarea></label>
<input name="off" disabled title="Switched off"><p hidden>Not <b>seen</b></p>
<button>Send</button> <button name="b" value="x">Other</button></form>
<details><summary>More</summary><p>Hidden words <a href="/y">Y</a></p></details>
<table><tr><th>Name</th><th>Price</th></tr>
<tr><td>Tea</td><td>3.40</td><td><a href="/t">See</a></td></tr></table>
<ul><li>one <b>two</b></li><li>three</li></ul>"""
SEEN = """Try / (http://forms.test/)
# Try /
[1] link "Home" [2] link "X" [3] link "Out"
[4] textbox "User name": ""
[5] password "Password": ""
[6] checkbox "Red"
[7] checkbox "Blue"
[8] radio "One" (checked)
[9] radio "Two"
[10] date "Day": ""
[11] select "Colour": "Apple red" of "Apple red", "Sky"
[12] textbox "Text": ""
[13] textbox "Switched off": "" (disabled) [14] button "Send" [15] button "Other"
[16] section "More" (closed)
Name | Price
Tea | 3.40 | [17] link "See"
- one two
- three"""


class Everything:
    """Remembers what forms sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[tuple[str, str], ...]] = []

    def handle(self, request: Request) -> Response:
        if request.method == "POST":
            self.sent.append(request.form)
            return Response(location="/done")
        if request.path == "/long":
            lines = "".join(f"<p>line {number}</p>" for number in range(150))
            return Response(page("Long", lines))
        return Response(page(f"Try {request.path}", BODY))


@contextmanager
def opened(**options: object) -> Iterator[Browser]:
    """A browser, which is closed; a skip where there is none. Machines that are busy have time."""
    pytest.importorskip("playwright", reason="needs turnwise[browser]")
    try:
        find_chromium()
    except ConfigError as error:
        pytest.skip(str(error))
    browser = Browser(**{"seconds": 120.0, **options})
    try:
        yield browser
    finally:
        browser.close()
