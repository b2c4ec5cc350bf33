"""Every view of the dashboard, opened and used in Chromium: nothing fails, nothing leaves the
machine, and hostile text stays text."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard_page import DashboardPage, chromium, dashboard
from dashboard_sample_run import LONG_EPISODE, finish, with_a_task_of_the_environment, write_run

pytestmark = pytest.mark.long
EPISODE = "#/r/0/episode/step-000003"
GROUP = "#/r/0/group/step-000003/train%2F2%2Ftask-0"
VIEWS = [
    "#/",
    "#/r/0",
    "#/r/0/curves",
    "#/r/0/curves?with=1&bands=1",
    "#/r/0/step/step-000003",
    f"{EPISODE}/1",
    f"{EPISODE}/1/tokens?by=advantage&find=down",
    f"{EPISODE}/6",
    GROUP,
    "#/r/0/timeline/2",
    "#/r/0/search?success=false",
    "#/r/0/reports",
    "#/r/0/reports/report",
    "#/r/0/reports/audit-before_run",
    "#/r/0/notes",
    "#/r/0/play",
    "#/compare?runs=0,1",
    "#/r/0/nowhere",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        finish(write_run(folder / "demo-0")),
        write_run(folder / "demo-1", seed=1, hostile=False),
    ]


@pytest.fixture(scope="module")
def address(runs: list[Path]) -> Iterator[str]:
    with dashboard(*runs) as found:
        yield found


@pytest.fixture
def shown(browser: Any, address: str) -> Iterator[DashboardPage]:
    """A page, which is to have had no fault and to have asked nothing of another machine."""
    one = DashboardPage(browser, address)
    yield one
    one.context.close()
    assert one.faults == []
    assert one.elsewhere() == []


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_every_view_opens_and_is_accessible(
    browser: Any, address: str, scheme: str, width: int
) -> None:
    shown = DashboardPage(browser, address, scheme=scheme, width=width)
    for link in VIEWS:
        page = shown.open(link)
        assert page.inner_text("main h1"), link
        assert shown.sideways() == 0, link
        assert shown.accessibility_faults() == [], link
        assert page.locator(".notice.error").count() == (link == "#/r/0/nowhere"), link
    shown.context.close()
    assert shown.faults == []
    assert shown.elsewhere() == []


def test_from_the_runs_to_tokens_trained_down_in_four_clicks(shown: DashboardPage) -> None:
    page = shown.page
    page.click("main .card h2 a >> nth=0")
    page.click("text=Why did episodes fail?")
    page.click("main .found a >> nth=0")
    assert "Why it failed" in page.inner_text(".why")
    assert "trained down" in page.inner_text(".why")
    page.click("text=Show them")
    page.wait_for_selector(".token[aria-selected=true]")
    assert "Trained down" in page.inner_text(".token-facts")
    assert page.locator(".token[aria-selected=true].trained").count() == 1


def test_the_timeline_is_zoomed_by_keys_and_says_what_a_bar_is(shown: DashboardPage) -> None:
    page = shown.open("#/r/0/timeline/3")
    lanes = page.locator(".lanes")
    assert "6 lanes" in str(lanes.get_attribute("aria-label"))
    assert "the last to end is train/2/task-0" in page.inner_text("section:has-text('Who waited')")
    lanes.focus()  # first: its outline is in the picture
    before = lanes.locator("canvas").screenshot()
    page.keyboard.press("+")
    assert lanes.locator("canvas").screenshot() != before
    page.keyboard.press("0")
    assert lanes.locator("canvas").screenshot() == before
    box = lanes.locator("canvas").bounding_box()
    page.mouse.click(box["x"] + 0.45 * box["width"], box["y"] + 24 + 18 * 2.5)
    assert "train/2/task-0 episode" in page.inner_text(".lane-facts")
    page.click("text=Open the episode")
    page.wait_for_selector(".why")


def test_runs_are_compared_and_drawn_over_each_other(shown: DashboardPage) -> None:
    page = shown.page
    for box in page.locator(".card input[type=checkbox]").all():
        box.check()
    page.click("text=Compare 2 runs")
    page.wait_for_selector("text=2 runs compared")
    rows = page.locator("section:has-text('Recipe') tbody th").all_inner_texts()
    assert rows == ["seed"]
    page.click("text=Their curves")
    page.wait_for_selector(".chart")
    chart = page.locator(".chart", has_text="reward/mean").last
    assert drawn(chart) == (0, pytest.approx([0.3, 0.35]))
    page.check("text=Seeds as bands")
    chart = page.locator(".chart", has_text="reward/mean").last
    assert drawn(chart) == (1, pytest.approx([0.325, 0.3, 0.35]))
    page.reload()
    page.wait_for_selector("[title='demo (mean of 2)'] >> nth=0")  # the address keeps the choice


def drawn(chart: Any) -> tuple[int, list[float]]:
    """How many bands a chart has, and the last values of its lines and of the bands' edges."""
    plot = chart.locator(".plot")
    plot.locator("canvas").wait_for()
    found = plot.evaluate(
        "one => [one.plot.bands.length, one.plot.data.slice(1).map((values) => values.at(-1))]"
    )
    return found[0], found[1]


def test_a_metric_says_what_it_means_and_is_read_by_keys(shown: DashboardPage) -> None:
    page = shown.open("#/r/0")
    assert page.locator(".chart").all_inner_texts()[0].startswith("reward/mean")
    page = shown.open("#/r/0/curves")
    assert page.locator("main h2").all_inner_texts()[:2] == ["Does it learn?", "Echo Trap"]
    page.fill("input[type=search]", "reward/mean")
    chart = page.locator(".chart").last
    meaning = chart.locator(".meaning")
    assert not meaning.is_visible()
    plot = chart.locator(".plot")
    plot.focus()
    assert meaning.is_visible()
    assert "mean reward" in meaning.inner_text()
    assert "step 3" in chart.locator(".reading").inner_text()
    page.keyboard.press("ArrowLeft")
    assert "step 2" in chart.locator(".reading").inner_text()
    assert "0.2" in plot.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowLeft")
    assert "step 1" in chart.locator(".reading").inner_text()
    page.keyboard.press("End")
    plot.hover(position={"x": 50, "y": 40})
    assert "step 1" in chart.locator(".reading").inner_text()


def test_a_step_is_filtered_by_brushing(shown: DashboardPage) -> None:
    page = shown.open("#/r/0/step/step-000003")
    status = page.locator("section p.quiet[role=status]")
    whole = status.inner_text()
    assert page.locator(".badge", has_text="no signal").count() >= 1
    assert "infrastructure" in page.inner_text(".notice.warn")
    page.locator("input[type=range]").first.press("End")
    assert status.inner_text() == "1 episode in 1 group"
    page.click(".brush-foot button")
    assert status.inner_text() == whole
    box = page.locator(".histogram").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 30)
    page.mouse.up()
    assert status.inner_text() == "1 episode in 1 group"
    page.select_option("label:has-text('Show') select", "equal")
    page.wait_for_selector("text=No such groups")
    page.locator("select").first.focus()
    page.keyboard.press("[")  # in a field: a letter like any other
    assert page.url.endswith("step-000003")
    page.locator("h1").click()
    page.keyboard.press("[")
    page.wait_for_selector("h1:has-text('Step 2')")


def test_an_episode_is_a_conversation_with_credit(shown: DashboardPage) -> None:
    page = shown.open(f"{EPISODE}/1")
    said = page.inner_text(".conversation")
    for expected in ("Question 0?", "lookup", "capital of 1", "It is Paris, episode 1.", "Rome"):
        assert expected in said
    assert page.locator(".credits .down").count() == 2
    assert "12 tokens, sum −12" in page.inner_text(".credits")
    assert "Share of the update's loss" in page.inner_text(".facts")
    page.click(".credits a >> nth=1")
    assert page.evaluate("document.activeElement.id") == "turn-1"
    page.click(".siblings a >> nth=0")
    page.wait_for_selector("text=Why it succeeded")
    assert "No token was trained down" in page.inner_text(".why")
    shown.open(f"{EPISODE}/6")
    assert "Why it has no grade" in page.inner_text(".why")


def test_tokens_are_coloured_and_say_why_they_have_no_gradient(shown: DashboardPage) -> None:
    page = shown.open(f"{EPISODE}/1/tokens")
    facts = page.locator(".token-facts")
    assert "did not sample it" in facts.inner_text()
    first = page.locator(".tokens .token >> nth=0")
    assert "kind1" in first.get_attribute("class")
    page.check("input[value=advantage]", force=True)
    assert page.locator(".tokens .down7").count() > 10
    assert page.locator("input[value=value]").is_disabled()
    page.locator(".tokens .down7 >> nth=0").hover()
    assert "Trained down" in facts.inner_text()
    assert "Log-prob. sampled" in facts.inner_text()
    page.locator(".tokens").focus()
    page.keyboard.press("End")
    assert "54" in facts.inner_text()
    page.click("text=Link to this token")
    page.wait_for_selector("#token-54[aria-selected=true]")
    assert page.is_checked("input[value=advantage]")
    page = shown.open(f"{EPISODE}/1/tokens?from=20")
    for name, label in (("entropy", "Entropy"), ("loss_weight", "Share of the update's loss")):
        page.check(f"input[name=by][value={name}]")
        assert page.locator(".token[class*=high]").count() > 0, name
        assert label in page.inner_text(".token-facts")


def test_thirty_thousand_tokens_scroll(shown: DashboardPage) -> None:
    page = shown.open(f"{EPISODE}/8/tokens")
    page.wait_for_selector(".token-foot p:has-text('29,'):not(:has-text('loaded'))")
    assert page.locator(".token").count() < LONG_EPISODE / 10
    page.locator(".tokens").focus()
    page.keyboard.press("End")
    page.wait_for_selector(".token[aria-selected=true]")
    assert page.locator(".token").count() < LONG_EPISODE / 10
    most, empty = page.evaluate("""async () => {
        const box = document.querySelector(".tokens");
        const { left, top, height } = box.getBoundingClientRect();
        let most = 0, empty = 0;
        for (let place = 0; place < box.scrollHeight - height; place += 3000) {
            box.scrollTop = place;
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            most = Math.max(most, box.querySelectorAll(".token").length);
            empty += !document.elementFromPoint(left + 20, top + height / 2).closest(".token");
        }
        return [most, empty];
    }""")
    assert most < LONG_EPISODE / 10
    assert empty == 0, "wherever one scrolls to, there are tokens"


def test_a_group_stands_side_by_side(shown: DashboardPage) -> None:
    page = shown.open(GROUP)
    assert page.locator(".beside thead th").count() == 4
    assert page.locator("text=First difference").count() == 3
    assert page.locator(".tree .joint").count() == 1
    page.uncheck(".legend input >> nth=3")
    assert page.locator(".beside thead th").count() == 3
    page.click("text=First difference >> nth=0")
    page.wait_for_selector(".token[aria-selected=true]")


def test_episodes_are_found_and_the_address_keeps_the_question(shown: DashboardPage) -> None:
    page = shown.open("#/r/0/search")
    page.fill("input[name=text]", "episode 2")
    page.select_option("select[name=file]", "step-000002")
    page.wait_for_selector("text=1 found")
    assert "text=episode" in page.url
    page.reload()
    page.wait_for_selector("text=1 found")
    page.check(".found input")
    with page.expect_download() as download:
        page.click(".chosen >> text=A page")
    assert "It is Paris, episode 2." in Path(download.value.path()).read_text()
    page.fill("input[name=text]", "nowhere at all")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Nothing was found")


def test_notes_are_kept_beside_the_run(shown: DashboardPage, runs: list[Path]) -> None:
    before = sorted(runs[0].rglob("*"))
    page = shown.open(f"{EPISODE}/2")
    page.fill("textarea", "Look at this <b>again</b>.")
    page.click("text=Save the note")
    page.wait_for_selector("text=Saved beside the run.")
    page.click("text=Notes")
    page.wait_for_selector("text=Look at this <b>again</b>.")
    assert sorted(runs[0].rglob("*")) == before
    notes = runs[0].with_name("demo-0.notes.jsonl").read_text()
    assert json.loads(notes.splitlines()[-1])["row"] == 2


def test_hostile_text_stays_text(shown: DashboardPage) -> None:
    for link in (f"{EPISODE}/7", f"{EPISODE}/7/tokens", "#/r/0/search?text=window.harmed"):
        page = shown.open(link)
        page.wait_for_timeout(200)
        assert "harmed" in page.inner_text("main") or "tokens" in link
        assert page.evaluate("window.harmed") is None
        assert page.locator("main script, main style, main img, main svg[onload]").count() == 0
        assert page.locator("main").is_visible()


def test_a_line_of_ten_million_characters_is_shown_in_parts(shown: DashboardPage) -> None:
    begin = time.monotonic()
    page = shown.open(f"{EPISODE}/7")
    assert time.monotonic() - begin < 30
    more = page.locator("button", has_text="Show more").last
    assert "characters left" in more.inner_text()
    length = page.evaluate("document.querySelector('main').textContent.length")
    assert length < 50_000
    more.click()
    longer = page.evaluate("document.querySelector('main').textContent.length")
    assert length < longer < 100_000


def test_a_run_that_grows_is_followed(browser: Any, tmp_path: Path, runs: list[Path]) -> None:
    run = tmp_path / "growing"
    shutil.copytree(runs[1], run)
    with dashboard(run) as address:
        shown = DashboardPage(browser, address)
        page = shown.open("#/r/0/curves")
        page.wait_for_selector("text=step 3 >> nth=0")
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 4, "reward/mean": 0.9}) + "\n")
        page.wait_for_selector(".chart:has-text('reward/mean') >> text=step 4 >> nth=0")
        shown.context.close()
        assert shown.faults == []


def test_keys_lead_through_the_views_and_a_mistake_back(shown: DashboardPage) -> None:
    page = shown.open("#/r/0/nowhere")
    assert "go back to all runs" in page.inner_text("[role=alert]")
    page = shown.open("#/r/0")
    assert "Resumed after step 2 with cluster.learners = 2" in page.inner_text("main")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for key, heading in (("c", "Curves"), ("e", "Episodes"), ("t", "Timeline"), ("r", "Runs")):
        page.keyboard.press(key)
        page.wait_for_selector(f"h1:has-text('{heading}')")


def test_print_has_the_content_alone(shown: DashboardPage) -> None:
    page = shown.open(f"{EPISODE}/1")
    page.emulate_media(media="print")
    assert page.locator(".conversation").is_visible()
    assert not page.locator("#tabs").is_visible()
    assert not page.locator(".actions").first.is_visible()


@pytest.mark.slow
def test_an_environment_is_played_by_hand(shown: DashboardPage) -> None:
    page = shown.open("#/r/0/play?file=step-000003&row=1&turn=0")
    page.fill("input[name=task]", "0")
    page.click("text=Begin")
    page.fill(".play-tool input[name=query]", "TarInfo")
    page.click("text=Call search")
    page.wait_for_selector(".said.observation >> nth=1")
    page.click("text=One turn back")
    page.wait_for_selector("text=Back to")
    page.fill("textarea[name=text]", "certainly wrong")
    page.click("text=Send")
    page.wait_for_selector(".said.verdict")
    assert "failure" in page.inner_text(".said.verdict")


@pytest.mark.slow
def test_a_recorded_episode_is_played_again_turn_by_turn(browser: Any, tmp_path: Path) -> None:
    run = with_a_task_of_the_environment(write_run(tmp_path / "demo", hostile=False))
    with dashboard(run) as address:
        shown = DashboardPage(browser, address)
        page = shown.open("#/r/0/play?file=step-000001&row=1&turn=0")
        page.click("text=Play on from turn 1")
        for turn in ("capital of 1", "Rome"):
            assert turn in page.inner_text(".play-tool >> nth=0")
            twice = "button => { button.focus(); button.click(); button.click(); }"
            page.eval_on_selector("text=Do as recorded", twice)
            page.wait_for_selector(f".said.agent:has-text('{turn}')")
            page.wait_for_selector(f".play:not(:has-text('{turn}'))")
            assert page.locator(".play :focus").count() == 1
        page.wait_for_selector(".said.verdict")
        assert "Turn 1 was answered otherwise" in page.inner_text(".play")
        page.click("text=One turn back")
        page.wait_for_selector("text=Do as recorded")
        assert "Turn 1 was answered otherwise" in page.inner_text(".play")
        shown.context.close()
        assert shown.faults == []
