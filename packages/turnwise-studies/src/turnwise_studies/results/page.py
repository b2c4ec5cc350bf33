"""The page of a study, its table, and the page that lists all studies of a folder. Made of
`Figures` alone: nothing was typed by hand but what the study's file says."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from turnwise.evaluation.details import probability
from turnwise_studies.results.effects import Effect, Mean, detectable
from turnwise_studies.results.figures import Figures, OfArm
from turnwise_studies.results.measures import Measured

WIDE = "---\nhide: [toc]\n---"
"""The site gives a page without a table of contents more room."""
MADE = "<!-- Made by `turnwise study`. -->"
SMALLEST = (
    "**This is the smallest form of the study, with which one sees that it works. It is no "
    "result.**"
)
NONE = "–"


def table(figures: Figures) -> str:
    """Arms with the same numbers, as those with one cold start before RL, have one row."""
    several = len(figures.seeds) > 1
    numbers = ["by seed", "mean (95% over seeds)"] if several else ["number (95% over tasks)"]
    lines = [_row(["metric", "arm", *numbers]), "|" + "---|" * (2 + len(numbers))]
    found: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for name, arm, of in by_metric(figures):
        rate = name in figures.rates
        measured = of.by_seed.values()
        cells = [_by_seed(measured, rate), _mean_of(of, rate)]
        cells = cells if several else [measured_text(one, rate) for one in measured]
        found.setdefault(name, {}).setdefault((*cells,), []).append(arm)
    for name, rows in found.items():
        names = [name, *[""] * (len(rows) - 1)]
        lines += [
            _row([metric, "; ".join(arms), *cells])
            for metric, (cells, arms) in zip(names, rows.items(), strict=True)
        ]
    return "\n".join(lines) + "\n"


def by_metric(figures: Figures) -> Iterator[tuple[str, str, OfArm]]:
    """Metric, arm and its numbers: the arms of a metric that have any, one below the other."""
    metrics = dict.fromkeys(name for of in figures.arms.values() for name in of)
    for name in metrics:
        for arm, of in figures.arms.items():
            if any(one.value is not None for one in of[name].by_seed.values()):
                yield name, arm, of[name]


def page(figures: Figures, plot: str) -> str:
    """`plot` is the name of the plot beside it, empty for none."""
    parts = [
        MADE,
        f"# {figures.title}",
        SMALLEST if figures.smallest else "",
        figures.about,
        f"Source: {figures.source}." if figures.source else "",
        *(effect_text(effect, figures) for effect in figures.effects),
        "" if figures.effects else "The study claims no effect: it is a comparison.",
        "## All arms and seeds",
        table(figures).rstrip(),
        f"![All arms by step]({plot})" if plot else "",
        "## How it was measured",
        f"- `{figures.command}`, seeds {', '.join(map(str, figures.seeds))}: "
        f"{figures.minutes:.0f} minutes\n"
        f"- {'; '.join(figures.machines)}\n"
        f"- {', '.join(f'`{one}`' for one in figures.commits)}, {figures.measured}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def effect_text(effect: Effect, figures: Figures) -> str:
    rate = effect.metric in figures.rates
    claim = effect.claim or (
        f"{effect.arm} is {effect.direction} than {effect.against} in {effect.metric}"
    )
    shown = effect.verdict == "effect shown"  # of which the intervals above say why
    verdict = f"**{effect.verdict.capitalize()}**{'' if shown else f': {effect.why}'}."
    if figures.smallest:
        verdict = "No verdict: the smallest form is no result."
    lines = [f"## {claim.rstrip('.')}", ""]
    if effect.published:
        source = f" ({effect.source})" if effect.source else ""
        lines += [f"- Published: {effect.published}{source}."]
    seen = detectable_text(effect, figures)
    verdict += f" {seen}." if seen else ""
    return "\n".join([*lines, f"- Here: {difference_text(effect, rate)}.", f"- {verdict}"])


def detectable_text(effect: Effect, figures: Figures) -> str:
    """The effect that could have been shown, for a claim that was not; empty for the others."""
    least = detectable(effect.by_seed, len(figures.effects))
    if effect.verdict != "not shown" or least is None or figures.smallest:
        return ""
    rate = effect.metric in figures.rates
    seeds = f"{len(effect.by_seed)} seeds like these"
    if rate and least > 1:
        return f"{seeds} could show hardly any difference"
    size = f"{100 * least:.1f} points" if rate else _number(least, rate)
    return f"{seeds} show {size} in 80% of cases"


def difference_text(effect: Effect, rate: bool) -> str:
    name = f"{effect.metric} of {effect.arm} less that of {effect.against}"
    mean = effect.over_seeds
    if mean is None:
        return f"{name}: not every run has the number"
    p = "" if effect.p_corrected is None else f", p {_probability(effect.p_corrected)} (Holm)"
    points = " points" if rate else ""
    text = f"{name} {_signed(mean.mean, rate)}{points}{_interval(mean, rate)}{p}"
    if effect.ratio is not None:
        text += f"; {_times(effect.ratio)} as much"
    if effect.by_task is not None:
        by = effect.by_task
        low, high = _signed(by.low, rate), _signed(by.high, rate)
        text += f"; by task {low} to {high} ({by.tasks} tasks)"
    return text


def measured_text(one: Measured, rate: bool) -> str:
    if one.value is None:
        return NONE
    if one.low is None or one.high is None:
        return _number(one.value, rate)
    return f"{_number(one.value, rate)} ({_range(one.low, one.high, rate)})"


def _by_seed(measured: Iterable[Measured], rate: bool) -> str:
    """The numbers in the order of the seeds, without intervals, which the figures' file has."""
    numbers = [NONE if one.value is None else _number(one.value, rate) for one in measured]
    return ", ".join(numbers) if len(set(numbers)) > 1 else f"each {numbers[0]}"


def overview(studies: Sequence[Mapping[str, Any]]) -> str:
    """The page that lists studies, from their figures.json."""
    head = ["study", "first claim", "verdict", "here (95% over seeds)", "published", "others"]
    lines = [_row(head), "|" + "---|" * len(head)]
    verdicts: list[list[str]] = []
    for found in sorted(studies, key=lambda one: str(one["title"])):
        own = [_verdict(effect, found) for effect in found["effects"]]
        verdicts.append(own)
        claim = _claim(found["effects"][0], found) if own else ("a comparison", *[NONE] * 3)
        lines.append(_row([_study(found), *claim, _counted(own[1:]) or NONE]))
    claims = [verdict for own in verdicts for verdict in own]
    first, some = (sum("effect shown" in own[:most] for own in verdicts) for most in (1, None))
    text = (
        "An effect is shown if the 95% intervals of the paired difference, "
        "over seeds (Student's t) and by task, lie on the claimed side of 0, opposite if on the "
        "other one; not shown is not the same as not there: a study's page says what could have "
        f"been seen, and has its other claims. Minutes are of all runs together; {NONE}: there is "
        f"no such number. {len(studies)} studies, {len(claims)} claims: {_counted(claims)}. "
        f"A study's first claim is shown in {first} of them, at least one claim in {some}."
    )
    return "\n\n".join([WIDE, MADE, "# Studies", text, "\n".join(lines)]) + "\n"


def _counted(verdicts: Iterable[str]) -> str:
    found = Counter(verdicts).most_common()
    return ", ".join(f"{count} {verdict.removeprefix('effect ')}" for verdict, count in found)


def _verdict(effect: Mapping[str, Any], study: Mapping[str, Any]) -> str:
    return "smallest form, no result" if study["smallest"] else str(effect["verdict"])


def _study(found: Mapping[str, Any]) -> str:
    count = len(found["seeds"])
    seeds = f"{count} seed{'s' if count > 1 else ''}, {found['minutes']:.0f} minutes"
    return f"[{found['title']}]({found['name']}.md)<br>{seeds}<br>`{found['command']}`"


def _claim(effect: Mapping[str, Any], study: Mapping[str, Any]) -> tuple[str, str, str, str]:
    claim = effect["claim"] or f"{effect['arm']} against {effect['against']}"
    rate, mean = effect["metric"] in study["rates"], effect["over_seeds"]
    here = NONE
    if mean is not None:
        points = " points" if rate else ""
        found = f"{_signed(mean['mean'], rate)}{points}{_interval(Mean(**mean), rate)}"
        here = f"{effect['metric']} {found}"
        if effect["ratio"] is not None:
            here += f", {_times(Mean(**effect['ratio']))}"
    return claim.rstrip("."), _verdict(effect, study), here, effect["published"] or NONE


def _mean_of(of: OfArm, rate: bool) -> str:
    if of.over_seeds is None:
        return NONE
    mean = of.over_seeds
    return f"{_number(mean.mean, rate)}{_interval(mean, rate, signed=False)}"


def _interval(mean: Mean, rate: bool, signed: bool = True) -> str:
    if mean.low is None or mean.high is None:
        return ""
    if mean.low == mean.high:
        return " (all seeds alike)"
    if signed:
        return f" ({_signed(mean.low, rate)} to {_signed(mean.high, rate)})"
    return f" ({_range(mean.low, mean.high, rate)})"


def _range(low: float, high: float, rate: bool) -> str:
    """An interval's ends, of which those of a share have no % again."""
    return f"{_number(low, rate)}{' to ' if low < 0 else '–'}{_number(high, rate)}".replace("%", "")


def _times(ratio: Mean) -> str:
    return f"{ratio.mean:.3g} times{_interval(ratio, False, signed=False)}"


def _number(value: float, rate: bool) -> str:
    if rate:
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _signed(value: float, rate: bool) -> str:
    """A difference of shares in points, of which the unit is left to the caller."""
    if rate:
        return f"{100 * value:+.1f}"
    return f"{value:+,.0f}" if abs(value) >= 100 else f"{value:+.3g}"


def _probability(p: float) -> str:
    text = probability(p)
    return text if text.startswith("<") else f"= {text}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
