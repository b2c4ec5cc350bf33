"""Lines of Markdown on evaluations, beside their success: comparisons, reliability, effort."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turnwise.evaluation.paired import Comparison


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of Markdown, and an empty line."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return [lines[0], "|---" * len(head) + "|", *lines[1:], ""]


def comparison_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """A table of comparisons, and a sentence on each; nothing without any."""
    if not comparisons:
        return []
    head = ["second less first, on the same tasks", "difference", "95% interval", "only first"]
    rows = [
        [
            f"{one.second} less {one.first}",
            f"{100 * one.difference:+.1f} points",
            f"{100 * one.low:+.1f} – {100 * one.high:+.1f}",
            str(one.only_first),
            str(one.only_second),
            probability(one.p_corrected),
            f"{100 * one.detectable:.1f}",
        ]
        for one in comparisons
    ]
    sentences = [f"- {one.second} and {one.first}: {one.verdict}." for one in comparisons]
    if not all(one.same_seeds for one in comparisons):
        sentences.append("- Tasks are the same in each pair; chance in their episodes is not.")
    return [*table([*head, "only second", "p (Holm)", "detectable"], rows), *sentences, ""]


def probability(p: float) -> str:
    """A p-value in print."""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def reliability_lines(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A table of pass@k, pass^k and the best of k, where a task has several episodes."""
    several = {name: part for name, part in parts.items() if "pass@k" in part}
    if not several:
        return []
    chosen = next(iter(several.values())).get("best_by")
    head = ["policy", "k", "pass@k", "95% interval", "pass^k", "95% interval"]
    head += [f"best of k by {chosen}", "95% interval"] if chosen else []
    kinds = ("pass@k", "pass^k", *(("best@k",) if chosen else ()))
    rows = [
        [
            *(name, k, *(cell for kind in kinds for cell in _estimate(part[kind][k]))),
            *(str(at["tasks"]), str(at["undefined"])),
        ]
        for name, part in several.items()
        for k, at in part["pass@k"].items()
    ]
    return table([*head, "tasks", "undefined"], rows)


def part_lines(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A table of what the verdicts report, if anything, with a column for each evaluation."""
    names = list(dict.fromkeys(name for part in parts.values() for name in part.get("parts", {})))
    rows = [
        [name, *(_mean(part.get("parts", {}).get(name)) for part in parts.values())]
        for name in names
    ]
    return table(["reported by the verdict, mean", *parts], rows) if rows else []


def _mean(found: Mapping[str, float] | None) -> str:
    return "–" if found is None else f"{found['mean']:.3g}"


def effort_table(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A table of what a success takes in each evaluation: all that was spent, by the successes."""
    if not any(part["successes"] for part in parts.values()):
        return []
    priced = any("cost" in part for part in parts.values())
    rows = []
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
        rows.append([*cells, price] if priced else cells)
    head = ["policy", "tokens a success", "seconds a success", "tokens an episode"]
    return table([*head, "cost a success"] if priced else head, rows)


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
    ceiling where its interval is apart from another's: these tasks then told the two apart."""
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


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"


def _price(cost: Mapping[str, Any], name: str) -> str:
    return f"{cost[name]:.3g}"


def _estimate(entry: Mapping[str, Any]) -> tuple[str, str]:
    if entry["mean"] is None:
        return "undefined", "–"
    return f"{entry['mean']:.1%}", f"{entry['low']:.1%} – {entry['high']:.1%}"
