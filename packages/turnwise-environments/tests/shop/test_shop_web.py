"""The shop as web pages: the same tasks and verdicts as the shop's."""

from dataclasses import replace

import pytest

from environment_playing import judged, played, prototype
from turnwise.types import Action, ToolCall
from turnwise_environments.measurement import all_tasks, random_script, spread
from turnwise_environments.shop.environment import Shop
from turnwise_environments.shop.web import ShopWeb

made = prototype("shop_web")


@pytest.mark.long
def test_verdicts_are_the_shops(made: ShopWeb) -> None:
    shop, web = Shop(), ShopWeb()
    assert all_tasks(made) == all_tasks(Shop())
    tasks = spread(all_tasks(made), 100)
    for task in tasks:
        here, there = (judged(one, task, *random_script(one, task)) for one in (web, shop))
        assert here == replace(there, turn_parts={})


def test_pages(made: ShopWeb) -> None:
    task = made.tasks("train")[0]
    search = ToolCall("fill", {"element": 1, "text": "kettle & <b>"})
    clicks = [ToolCall("click", {"element": number}) for number in (2, 1)]
    play = played(
        made, task, Action("", calls=(search,)), *[Action("", calls=(click,)) for click in clicks]
    )
    assert play.seen[0] == f"{task.prompt}\n\nShop (http://shop.test/)\n# Shop\n" + (
        '[1] textbox "Words": ""\n[2] button "Search"'
    )
    _, results, product = play.trajectory.observed
    assert "words=kettle+%26+%3Cb%3E" in results
    assert "Page 1, 50 results" in results
    assert results.endswith('[11] link "Back to Search" [12] link "Next >"')
    assert "Price: $" in product
    assert "(checked)" not in product
    assert product.endswith('link "Features"')
