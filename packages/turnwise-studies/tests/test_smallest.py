"""The smallest form of every study of this repository, from the command to its page."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from study_fake_runs import STUDIES
from turnwise_studies.config import load_study

TWO_MINUTES = 2 * 120.0
"""Seconds of the processor that two cores have in two minutes."""


def seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
@pytest.mark.wing("algorithms")
@pytest.mark.wing("environments")
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: Path(study).stem)
def test_the_smallest_form_of_a_study_takes_two_minutes_and_writes_its_page(
    study: str, tmp_path: Path
) -> None:
    before, pages, name = seconds_of_children(), tmp_path / "pages", load_study(study).config.name
    words = ["study", study, "--smallest", "--out", str(tmp_path / "out"), "--page", str(pages)]
    subprocess.run([sys.executable, "-m", "turnwise", *words], check=True)
    assert seconds_of_children() - before <= TWO_MINUTES
    found = json.loads((pages / f"{name}.json").read_text())
    page = (pages / f"{name}.md").read_text()
    assert page.startswith("<!-- Made by `turnwise study`")
    for effect in found["effects"]:
        assert f"## {effect['claim'].rstrip('.')}" in page
    for plot in (line for line in page.splitlines() if line.startswith("![")):
        assert (pages / plot.rpartition("(")[2].rstrip(")")).stat().st_size > 1000
    assert f"]({name}.md)" in (pages / "index.md").read_text()
