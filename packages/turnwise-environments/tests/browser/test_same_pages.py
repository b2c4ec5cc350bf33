"""Chromium and the reader of plain pages: the same numbers, words, errors and requests."""

from typing import Any

import pytest

from browser_sites import HOST, SEEN, START, Everything, opened
from turnwise.errors import ToolError
from turnwise_environments.tools.browser.static_page import StaticPage

ACTIONS: list[tuple[Any, ...]] = [
    *[("read",), ("fill", 4, 'a"b\nc'), ("fill", 5, "secret"), ("click", 6), ("click", 9)],
    *[("fill", 10, "2027-03-31"), ("fill", 10, "3 March"), ("select", 11, "Sky")],
    *[("select", 11, "Red"), ("fill", 12, "a\nb"), ("click", 13), ("click", 16), ("click", 17)],
    *[("back",), ("back",), ("click", 16), ("press", 16, "Enter"), ("fill", 12, "a\r\nb")],
    *[("click", 15), ("back",), ("press", 4, "Enter"), ("click", 2), ("click", 2), ("click", 3)],
    *[("click", 99), ("fill", 1, "x"), ("press", 6, "Enter"), ("press", 10, "Enter")],
    *[("press", 2, "Enter"), ("click", 14), ("back",), ("back",), ("back",), ("scroll", "down")],
]


async def problem(page: Any, action: tuple[Any, ...]) -> str:
    try:
        await page.act(*action)
    except ToolError as error:
        return str(error)
    return ""


@pytest.mark.slow
async def test_the_same_in_both() -> None:
    plain, real = Everything(), Everything()
    with opened() as browser:
        light = StaticPage(plain, START)
        page = await browser.open({HOST: real})
        await page.act("goto", START)
        assert (await page.view()).shown() == SEEN
        for action in ACTIONS:
            assert await problem(page, action) == await problem(light, action), action
            assert (await page.view()).shown() == light.look().shown(), action
        await page.close()
    assert real.sent == plain.sent
    assert len(real.sent) == 5
