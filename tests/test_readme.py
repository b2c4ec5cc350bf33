"""The README shows the code that is there."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
THIRTY = 30


def test_the_environment_in_the_readme_is_the_example_and_has_thirty_lines() -> None:
    code = (ROOT / "examples/thermostat.py").read_text().partition('"""\n\n')[2]
    assert f"```python\n{code}```" in (ROOT / "README.md").read_text()
    body = code.partition("class ")[2]
    assert len([line for line in body.splitlines() if line.strip()]) <= THIRTY


def test_pages_that_are_linked_exist() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for part in page.read_text().split("](")[1:]:
            target = part.partition(")")[0]
            if not target.startswith(("http", "#")):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
