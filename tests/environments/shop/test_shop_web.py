"""The shop as web pages: the same tasks and verdicts as the shop's."""

import asyncio

import pytest

from tests.environments.playing import judged, played
from turnwise.environments.measurement import (
    NOTHING,
    all_tasks,
    is_concurrent,
    is_deterministic,
    is_restorable,
    played_all,
    random_script,
    spread,
    success,
)
from turnwise.environments.registry import make_environment
from turnwise.environments.shop.environment import Shop
from turnwise.environments.shop.web import ShopWeb
from turnwise.types import Action, ToolCall


@pytest.fixture(scope="module")
def made() -> ShopWeb:
    environment = make_environment("shop_web", {})
    assert isinstance(environment, ShopWeb)
    return environment


def test_the_oracle_and_the_floors(made: ShopWeb) -> None:
    tasks = all_tasks(made)
    assert tasks == all_tasks(Shop())
    few = spread(tasks, 200)
    assert success(played_all(made, few, [made.oracle(task) for task in few])) == 1.0
    assert success(played_all(made, few, [[NOTHING]] * 200)) == 0.0


def test_verdicts_are_the_shops(made: ShopWeb) -> None:
    shop = Shop(reward="webshop")
    web = ShopWeb(reward="webshop")
    tasks = spread(all_tasks(made), 100)
    for task in tasks:
        here, there = (judged(one, task, *random_script(one, task)) for one in (web, shop))
        assert here == there


def test_another_process_a_snapshot_and_many_at_once(made: ShopWeb) -> None:
    assert is_deterministic("shop_web", {"count": 20}, ShopWeb(count=20))
    few = made.tasks("heldout")[:8]
    assert asyncio.run(is_restorable(made, few))
    assert asyncio.run(is_concurrent(made, few))


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
