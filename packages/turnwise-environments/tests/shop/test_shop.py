"""The shop, as text and as web pages: pages, what is bought wrongly, the same verdicts."""

from dataclasses import replace

import pytest

from environment_playing import calling, judged, played, prototype
from turnwise.types import Action
from turnwise_environments.choosing import all_tasks, spread
from turnwise_environments.measurement import NOTHING, played_all, random_script, success
from turnwise_environments.shop.environment import BACK, BUY, FEATURES, NEXT, PREVIOUS, Shop
from turnwise_environments.shop.web import ShopWeb

made = prototype("shop")


def clicking(*targets: str) -> list[Action]:
    return [calling("click", target=one) for one in targets]


def searching(keywords: str) -> Action:
    return calling("search", keywords=keywords)


def test_buying_something_earns_a_part_of_the_shaped_reward(made: Shop) -> None:
    tasks = spread(all_tasks(made), 100)
    plays = played_all(made, tasks, [random_script(made, task) for task in tasks])
    shaped = [play.trajectory.verdict.parts["webshop"] for play in plays if play.trajectory.verdict]
    assert 0.3 < sum(shaped) / 100 < 0.8


def test_wrong_purchases(made: Shop) -> None:
    task = next(task for task in made.tasks("train") if task.info["options"] == 2)
    *way, _ = made.oracle(task)
    buy = clicking(BUY)
    without = [
        action
        for action in way
        if action.calls[0].arguments.get("target") not in task.secret["options"].values()
    ]
    partly = judged(made, task, *without, *buy)
    count = len(task.secret["attributes"]) + 3
    assert partly.parts["webshop"] == pytest.approx((count - 2) / count)
    assert (partly.success, partly.reward) == (False, 0.0)
    for script in ([*way], [*way, *clicking(BACK), NOTHING], clicking(BUY)):
        found = judged(made, task, *script)
        assert (found.reward, found.success) == (0.0, False)
    other = next(one for one in made.tasks("train") if one.info["kind"] != task.info["kind"])
    assert judged(made, task, *made.oracle(other)).parts["webshop"] < 0.9


def test_pages(made: Shop) -> None:
    task = made.tasks("train")[0]
    play = played(
        made,
        task,
        *clicking("P0001"),
        searching("kettle"),
        searching("again"),
        *clicking(NEXT, PREVIOUS, PREVIOUS, "p0001"),
        *clicking("[P0001]", FEATURES, BUY, PREVIOUS, "nothing", BACK),
        searching("  "),
        searching("zzzz"),
    )
    seen = play.trajectory.observed
    assert seen[0] == "Error: there is no 'P0001' on this page"
    assert seen[1].startswith("Page 1, 50 results\n[P")
    assert seen[1].count("\n") == 11
    assert seen[1].endswith("[Back to Search] [Next >]")
    assert "no search on this page" in seen[2]
    assert seen[3].startswith("Page 2, 50 results")
    assert seen[4] == seen[1]
    assert seen[5].startswith("Error: there is no '< Prev'")


def test_a_product_page(made: Shop) -> None:
    task = made.tasks("train")[0]
    product = made._products[made._places[task.secret["product"].lower()]]
    way = made.oracle(task)
    to_it = next(
        number
        for number, action in enumerate(way)
        if action.calls[0].arguments.get("target") == product.id
    )
    color = task.secret["options"]["color"]
    script = [*way[: to_it + 1], *clicking(FEATURES, PREVIOUS, color.upper(), BACK)]
    seen = played(made, task, *script).trajectory.observed[to_it:]
    assert seen[0].startswith(f"{product.title} ${product.price:.2f}\ncolor: [")
    assert seen[1].startswith("; ".join(product.attributes))
    assert seen[2] == seen[0]
    assert f"(chosen: {color})" in seen[3]
    assert seen[4] == "[Search]"


def test_nothing_happens_after_a_purchase(made: Shop) -> None:
    task = made.tasks("train")[0]
    *way, buy = made.oracle(task)
    both = Action("", calls=(*buy.calls, *clicking(BACK)[0].calls))
    play = played(made, task, *way, both, *clicking(BACK))
    assert play.trajectory.turns[-1].action is both
    assert success([play]) == 1.0


@pytest.mark.long
def test_another_kind_of_thing_and_another_option_are_no_success(made: Shop) -> None:
    """WebShop's formula gives 1 to things of a brand, and to options with a word in common."""
    another_kind = another_option = loose = 0
    for task in made.tasks("heldout")[:10]:
        wanted, options = made.product(task.secret["product"]), task.secret["options"]
        for other in made._products:
            if other.kind != wanted.kind:
                verdict = made.judged(other, options, task)
                another_kind += verdict.success
                loose += verdict.parts["webshop"] == 1.0
        for name, value in options.items():
            for chosen in set(wanted.options[name]) - {value}:
                verdict = made.judged(wanted, {**options, name: chosen}, task)
                another_option += verdict.success
                loose += verdict.parts["webshop"] == 1.0
        assert made.judged(wanted, options, task).success
        assert not made.judged(wanted, {}, task).success
    assert loose > 0, "the formula itself is WebShop's"
    assert (another_kind, another_option) == (0, 0)


web = prototype("shop_web")


@pytest.mark.long
def test_verdicts_are_the_shops(web: ShopWeb) -> None:
    shop = Shop()
    assert all_tasks(web) == all_tasks(shop)
    tasks = spread(all_tasks(web), 100)
    for task in tasks:
        here, there = (judged(one, task, *random_script(one, task)) for one in (web, shop))
        assert here == replace(there, turn_parts={})


def test_pages_of_the_site(web: ShopWeb) -> None:
    task = web.tasks("train")[0]
    search = calling("fill", element=1, text="kettle & <b>")
    play = played(web, task, search, calling("click", element=2), calling("click", element=1))
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
