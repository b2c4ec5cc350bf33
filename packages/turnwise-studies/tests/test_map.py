"""The map of systems says of each claim what its study's figures say."""

import json
import re
from pathlib import Path

SYSTEMS = Path(__file__).parents[3] / "docs" / "systems"
CLAIMS = {"": 0, ", second claim": 1, ", fifth claim": 4}


def test_the_verdicts_of_the_map_are_those_of_the_figures() -> None:
    rows = re.findall(
        r"\| \[study\]\((\w+)\.md\)([^|]*?) \| ([^|]+) \|", (SYSTEMS / "map.md").read_text()
    )
    for study, claim, verdict in rows:
        figures = json.loads((SYSTEMS / f"{study}.json").read_text())
        assert figures["effects"][CLAIMS[claim]]["verdict"] == verdict, study
    studies = {file.stem for file in SYSTEMS.glob("*.json")}
    assert studies - {study for study, *_ in rows} == {"demo", "smollm2", "verifiability"}
