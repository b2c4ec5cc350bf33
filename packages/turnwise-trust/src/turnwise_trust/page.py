"""A page of findings: the verdict, then each finding with its figure, evidence and remedy.

All commands of this package end in one, which is printed, written as JSON, or as Markdown.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Column, Table

from turnwise.commands.printing import figure, print_json, print_line, print_table
from turnwise.storage.audits import Finding
from turnwise.storage.run_folder import writing
from turnwise.types import encodable

MARKS = {False: "FAILED", True: "passed", None: ""}


@dataclass(frozen=True)
class Page:
    """The findings of a command."""

    title: str
    verdict: str
    """In one sentence."""
    findings: Sequence[Finding]
    """The most important first."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Names that others give to its checks, by check."""

    @property
    def failed(self) -> list[Finding]:
        """The findings that speak against it."""
        return [one for one in self.findings if one.passed is False]

    def plain(self) -> dict[str, Any]:
        """The page as plain data, with a hash of its title and of each check's result: what was
        timed, or counted until a time was over, is not in it."""
        found = {
            "title": self.title,
            "verdict": self.verdict,
            "findings": [self._plain(one) for one in self.findings],
        }
        results = [(one.check, one.bound, one.passed) for one in self.findings]
        judged = [one for one in results if one[-1] is not None]
        text = json.dumps([self.title, *sorted(map(json.dumps, judged))])
        return {**found, "hash": hashlib.sha256(text.encode()).hexdigest()[:16]}

    def _plain(self, finding: Finding) -> dict[str, Any]:
        name = finding.check  # of an attack on a tool's argument, as of a leak, with the place
        known = self.ids.get(name) or self.ids.get(name.partition(" in ")[0])
        return asdict(finding) | ({} if known is None else {"openenv": known})

    def markdown(self) -> str:
        """The page as Markdown."""
        summary = f"{self.verdict} Hash of the results: `{self.plain()['hash']}`."
        lines = [f"# {self.title}", "", summary, "", "| | figure | |", "|---|---|---|"]
        for one in self.findings:
            said = _one_line(" ".join(filter(None, (MARKS[one.passed], _said(one)))))
            lines.append(f"| {_one_line(one.check)} | {_figures(one)} | {said} |")
        return "\n".join(lines) + "\n"

    def tell(self, file: Path | None, as_json: bool) -> None:
        """Write it into a file, as Markdown, if there is one, and print it."""
        if file is not None:
            with writing(file):
                file.write_text(encodable(self.markdown()), encoding="utf-8")
        if as_json:
            print_json(self.plain())
        else:
            self._print()

    def _print(self) -> None:
        """Print it to the terminal, the verdict last."""
        table = Table(
            Column("", overflow="fold"),
            Column("figure", justify="right", no_wrap=True),
            "",
            Column("evidence, and what to do", overflow="fold"),
            title=self.title,
        )
        for one in self.findings:
            table.add_row(escape(one.check), _figures(one), MARKS[one.passed], escape(_said(one)))
        print_table(table)
        print_line(self.verdict)


def _figures(finding: Finding) -> str:
    if finding.figure is None:
        return ""
    text = figure(finding.figure)
    if finding.low is None or finding.high is None:
        return text
    return f"{text} ({figure(finding.low)} – {figure(finding.high)})"


def _said(finding: Finding) -> str:
    replay = f"Replay: {finding.replay}" if finding.replay else ""
    return " ".join(filter(None, (finding.note, replay, finding.remedy)))


def _one_line(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
