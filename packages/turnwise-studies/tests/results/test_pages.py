"""Figures, curves and pages of a study, from run folders made by hand."""

import csv
import json
import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from study_fake_runs import fake_run
from turnwise.errors import ConfigError, DataError
from turnwise_studies.config import Study, StudyConfig
from turnwise_studies.results.curves import band, draw_curves, read_curves, write_curves
from turnwise_studies.results.figures import Figures, figures
from turnwise_studies.results.measures import Measured
from turnwise_studies.results.page import detectable_text, measured_text, overview, page, table

VALUES: dict[str, Any] = {
    "name": "it",
    "title": "It",
    "about": "A system.",
    "source": "A paper",
    "recipe": "search",
    "seeds": [3, 5, 7],
    "arms": {"new": {}, "old": {}},
    "metrics": {
        "success": {"report": "trained.success"},
        "steps": {"series": "rollout/success", "until": 0.9},
    },
    "effects": [
        {"metric": "success", "arm": "new", "against": "old", "published": "0.4 against 0.3"}
    ],
}
WON = [True] * 18 + [False] * 2


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, dict[int, Path]]:
    """The new arm wins 18, 17 and 18 of 20 tasks, the old one 1, 2 and 2."""
    lost = [not one for one in WON]
    return {
        "new": {
            3: fake_run(tmp_path / "n3", WON, [0.5, *[1.0] * 6]),
            5: fake_run(tmp_path / "n5", [False, *WON[1:]]),
            7: fake_run(tmp_path / "n7", WON),
        },
        "old": {
            3: fake_run(tmp_path / "o3", [*lost[:19], False]),
            5: fake_run(tmp_path / "o5", lost),
            7: fake_run(tmp_path / "o7", lost),
        },
    }


def found(folders: dict[str, dict[int, Path]], smallest: bool = False, **changes: Any) -> Figures:
    config = StudyConfig.model_validate({**VALUES, **changes})
    return figures(
        Study(config, "it.toml", Path("it.toml"), smallest), "turnwise study it", folders, []
    )


def test_figures_by_hand(folders: dict[str, dict[int, Path]]) -> None:
    """0.9 - 0.05, 0.85 - 0.1, 0.9 - 0.1: 0.8 on average, with a deviation of 0.05; t is 4.303."""
    one = found(folders)
    (effect,) = one.effects
    assert effect.by_seed == pytest.approx({"3": 0.85, "5": 0.75, "7": 0.8})
    assert effect.over_seeds.low == pytest.approx(0.8 - 4.302653 * 0.05 / 3**0.5)
    assert (effect.by_task.tasks, effect.by_task.pairs) == (20, 60)
    assert effect.by_task.difference == pytest.approx(0.8)
    assert effect.p_corrected < 0.05
    assert (effect.verdict, effect.ratio) == ("effect shown", None)
    assert effect.why == "both 95% intervals lie on the claimed side of 0"
    assert one.arms["new"]["steps"].by_seed["3"].value == 5
    assert one.arms["new"]["steps"].over_seeds is None  # the other seed did not reach it
    assert one.minutes == 9


def test_the_page_has_all_of_it(folders: dict[str, dict[int, Path]]) -> None:
    text = page(found(folders), "it.png")
    for said in (
        "# It",
        "A system.",
        "Source: A paper.",
        "Published: 0.4 against 0.3",
        "success of new less that of old +80.0 points (+67.6 to +92.4)",
        "p = 0.0013 (Holm)",
        "**Effect shown**",
        "| metric | arm | by seed | mean (95% over seeds) |",
        "| success | new | 90.0%, 85.0%, 90.0% |",
        "|  | old | 5.0%, ",
        "| steps | new | 5, –, – | – |",
        "![All arms by step](it.png)",
        "- `turnwise study it`, seeds 3, 5, 7: 9 minutes\n- m\n",
        "`abc`",
    ):
        assert said in text


def test_arms_with_the_same_numbers_have_one_row(folders: dict[str, dict[int, Path]]) -> None:
    text = table(found({"new": folders["new"], "old": folders["new"]}))
    assert "| success | new; old | 90.0%, " in text
    assert len(text.splitlines()) == 2 + 2  # of two metrics


def test_the_smallest_form_has_no_verdict(folders: dict[str, dict[int, Path]]) -> None:
    text = page(found(folders, smallest=True), "it.png")
    assert "no result" in text
    assert "shown" not in text.lower()


def test_an_interval_that_goes_below_0_is_read_as_one() -> None:
    assert measured_text(Measured(0.25, 0.125, 0.5), True) == "25.0% (12.5–50.0)"
    assert measured_text(Measured(0.2, -0.1, 0.5), False) == "0.2 (-0.1 to 0.5)"


def test_one_seed_has_a_table_without_a_mean(folders: dict[str, dict[int, Path]]) -> None:
    one = {arm: {3: by_seed[3]} for arm, by_seed in folders.items()}
    single = found(one, seeds=[3])
    assert "mean" not in table(single)
    assert single.effects[0].verdict == "no verdict"


def test_what_could_have_been_shown_stands_beside_what_was_not(
    folders: dict[str, dict[int, Path]],
) -> None:
    """Differences of 0, -0.05 and 0 have a deviation of 0.029; three seeds show 3.264 of them."""
    alike = {"new": folders["new"], "old": folders["new"] | {5: folders["new"][3]}}
    one = found(alike)
    said = "3 seeds like these show 9.4 points in 80% of cases"
    assert detectable_text(one.effects[0], one) == said
    assert said in page(one, "")
    assert "seeds like these" not in page(found(folders), "")
    small = found(alike, smallest=True)
    assert detectable_text(small.effects[0], small) == ""


def test_a_metric_that_no_run_has_is_refused_with_the_nearest(
    folders: dict[str, dict[int, Path]],
) -> None:
    missing = {"metrics": {"success": {"report": "trained.breakdown.hops.one.success"}}}
    with pytest.raises(ConfigError, match=r"no run has it.*hops\.two\.success"):
        found(folders, **missing)
    with pytest.raises(ConfigError, match="did you mean 'rollout/success'"):
        found(folders, metrics={"success": {"series": "rollout/sucess"}})
    success = {"success": {"report": "trained.success"}}
    unlearned = found(folders, metrics=success | {"drift": {"series": "policy/approx_kl"}})
    assert unlearned.arms["new"]["drift"].over_seeds is None  # no run made an update


def test_the_overview_has_a_line_for_each_study(folders: dict[str, dict[int, Path]]) -> None:
    one = json.loads(json.dumps(asdict(found(folders))))
    one["effects"].append(one["effects"][0] | {"verdict": "opposite"})
    none = one | {"name": "other", "title": "Other", "effects": []}
    text = overview([none, one])
    study = "| [It](it.md)<br>3 seeds, 9 minutes<br>`turnwise study it` |"
    assert f"{study} new against old | effect shown | success +80.0 points (+67.6" in text
    assert "| 0.4 against 0.3 | 1 opposite |" in text
    assert "2 studies, 2 claims: 1 shown, 1 opposite." in text
    assert "first claim is shown in 1 of them, at least one claim in 1." in text
    assert text.index("[It]") < text.index("[Other]")
    assert "a comparison" in text


def test_curves_are_data_and_an_image(folders: dict[str, dict[int, Path]], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no run has 'nothing'"):
        read_curves(["rollout/success", "nothing"], folders)
    assert read_curves(["policy/approx_kl"], folders)  # no run made an update
    curves = read_curves(["rollout/success"], folders)
    write_curves(curves, tmp_path / "curves.csv")
    rows = list(csv.DictReader((tmp_path / "curves.csv").read_text().splitlines()))
    names = ("series", "arm", "seed", "step", "value", "mean_of_5")
    values = ("rollout/success", "new", "3", "2", "1", "0.75")
    assert rows[1] == dict(zip(names, values, strict=True))
    draw_curves(curves, tmp_path / "it.png")
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_panels_stand_two_in_a_row(tmp_path: Path) -> None:
    def size(panels: int) -> tuple[int, int]:
        file = tmp_path / f"{panels}.png"
        draw_curves({f"s{one}": {"new": {0: [0.0, 1.0]}} for one in range(panels)}, file)
        width, height = struct.unpack(">II", file.read_bytes()[16:24])
        return width, height

    width, height = size(2)
    assert size(1)[0] < width
    assert size(3) == (width, 2 * height)


def test_a_band_is_of_steps_that_all_seeds_made() -> None:
    middle, low, high = band({0: [0.0, 1.0, 1.0], 1: [1.0, 1.0]})
    assert middle.tolist() == [0.5, 0.75]
    assert (low.tolist(), high.tolist()) == ([0.0, 0.5], [1.0, 1.0])
