"""Lines of Markdown on evaluations, beside their success: comparisons, reliability, effort.

Not here: how they are measured, and the report's table (`report.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.evaluation.paired import Comparison


def comparison_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """A table of comparisons, and a sentence on each; nothing without any."""
    if not comparisons:
        return []
    lines = [
        "| second less first, on the same tasks | difference | 95% interval | only first | "
        "only second | p (Holm) | detectable |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in comparisons:
        cells = [
            f"{one.second} less {one.first}",
            f"{100 * one.difference:+.1f} points",
            f"{100 * one.low:+.1f} – {100 * one.high:+.1f}",
            str(one.only_first),
            str(one.only_second),
            probability(one.p_corrected),
            f"{100 * one.detectable:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    sentences = [f"- {one.second} and {one.first}: {one.verdict}." for one in comparisons]
    if not all(one.same_seeds for one in comparisons):
        sentences.append("- Tasks are the same in each pair; chance in their episodes is not.")
    return [*lines, "", *sentences, ""]


def probability(p: float) -> str:
    """A p-value in print."""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def reliability_lines(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A table of pass@k, pass^k and the best of k, where a task has several episodes."""
    several = {name: part for name, part in parts.items() if "pass@k" in part}
    if not several:
        return []
    chosen = next(iter(several.values())).get("best_by")
    by = f" best of k by {chosen} | 95% interval |" if chosen else ""
    lines = [
        f"| policy | k | pass@k | 95% interval | pass^k | 95% interval |{by} tasks | undefined |",
        "|---|---|---|---|---|---|---|---|" + ("---|---|" if by else ""),
    ]
    for name, part in several.items():
        for k, at in part["pass@k"].items():
            cells = [_estimate(at), _estimate(part["pass^k"][k])]
            cells += [_estimate(part["best@k"][k])] if by else []
            cells += [str(at["tasks"]), str(at["undefined"])]
            lines.append(f"| {name} | {k} | {' | '.join(cells)} |")
    return [*lines, ""]


def part_lines(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A table of what the verdicts report, with a column for each evaluation; nothing where they
    report nothing."""
    names = list(dict.fromkeys(name for part in parts.values() for name in part.get("parts", {})))
    if not names:
        return []
    rows = [
        [name, *(_mean(part.get("parts", {}).get(name)) for part in parts.values())]
        for name in names
    ]
    head = ["reported by the verdict, mean", *parts]
    return [_row(head), "|---" * len(head) + "|", *map(_row, rows), ""]


def _mean(found: Mapping[str, float] | None) -> str:
    return "–" if found is None else f"{found['mean']:.3g}"


def effort_table(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A table of what a success takes in each evaluation: all that was spent, by the successes."""
    if not any(part["successes"] for part in parts.values()):
        return []
    head = ["policy", "tokens a success", "seconds a success", "tokens an episode"]
    priced = any("cost" in part for part in parts.values())
    lines = [_row([*head, *(["cost a success"] if priced else [])])]
    lines.append("|---" * (len(head) + priced) + "|")
    for name, part in parts.items():
        seconds, successes = part.get("seconds"), part["successes"]
        cells = [
            name,
            _number(part["tokens_per_success"], ".0f"),
            _number(seconds / successes if successes and seconds is not None else None, ".2g"),
            _number(part["tokens_sampled"], ".0f"),
        ]
        spent = part.get("cost") or {"per_success": None}
        price = "–" if spent["per_success"] is None else _price(spent, "per_success")
        lines.append(_row([*cells, *([price] if priced else [])]))
    return [*lines, ""]


def effort_lines(summary: Mapping[str, Any]) -> list[str]:
    """Cost, calls, evidence, and success by budget."""
    lines = [f"- {sentence}." for sentence in effort_sentences(summary)]
    for kind, curve in summary["budgets"].items():
        if len(curve) > 1:
            words = kind.replace("_", " ")
            budgets = [f"{budget}: {success:.1%}" for budget, success in curve]
            lines.append(f"- Success with at most so many {words}: {', '.join(budgets)}.")
    return [*lines, ""] if lines else []


def effort_sentences(summary: Mapping[str, Any]) -> list[str]:
    """Sentences on cost, calls and evidence, of what was measured."""
    found = []
    if summary["tokens_per_success"] is not None:
        seconds = summary.get("seconds")
        each = "" if seconds is None else f", {seconds / summary['successes']:.2g} s"
        found.append(f"A success costs {summary['tokens_per_success']:.0f} sampled tokens{each}")
    if "latency" in summary:
        found.append(
            f"An episode takes {summary['latency']['median']:.2g} s in the median, and "
            f"{summary['latency']['p95']:.2g} s or more in 5% of cases, with others beside it"
        )
    if "cost" in summary:
        found.append(price_sentence(summary["cost"]))
    calls, evidence = summary["calls"], summary["without_evidence"]
    if calls["made"]:
        beyond = (
            ""
            if calls["needed"] is None
            else (
                f" where {calls['needed']:.2f} are needed ({calls['beyond_need']:.2f} beyond need)"
            )
        )
        found.append(
            f"A success makes {calls['made']:.2f} tool calls{beyond}; {calls['repeated']:.1%} of "
            "them repeat an earlier one and its reply"
        )
    if evidence is not None:
        found.append(
            f"{evidence['without']} of {evidence['successes']} successes without evidence: no "
            "observation held an accepted answer"
        )
    return found


def price_sentence(cost: Mapping[str, Any]) -> str:
    """Say what an evaluation cost at the prices of its recipe."""
    total = f"At the prices of the recipe it cost {_price(cost, 'total')}"
    if cost["per_success"] is None:
        return total
    return f"{total}, {_price(cost, 'per_success')} a success"


def cautions_of(name: str, parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The cautions of one of several evaluations of the same tasks, without those of floor and
    ceiling where its interval is apart from that of another one, which these tasks then told from
    it."""
    part = parts[name]
    apart = any(part["low"] > one["high"] or part["high"] < one["low"] for one in parts.values())
    return [said for said in part["cautions"] if not (apart and said.startswith("at the "))]


def caution_lines(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The cautions of evaluations as a list, each once, with the names of those that it is of."""
    names: dict[str, list[str]] = {}
    for name in parts:
        for sentence in cautions_of(name, parts):
            names.setdefault(sentence, []).append(name)
    cautions = [f"- Caution ({', '.join(of)}): {said}." for said, of in names.items()]
    return [*cautions, ""] if cautions else []


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"


def _price(cost: Mapping[str, Any], name: str) -> str:
    return f"{cost['currency']}{cost[name]:.3g}"


def _estimate(entry: Mapping[str, Any]) -> str:
    if entry["mean"] is None:
        return "undefined | –"
    return f"{entry['mean']:.1%} | {entry['low']:.1%} – {entry['high']:.1%}"
