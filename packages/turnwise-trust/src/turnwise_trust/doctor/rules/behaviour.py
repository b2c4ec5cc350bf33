"""Signs of a policy that becomes narrow, repetitive, long, or gives its tools up."""

from collections.abc import Iterable

from turnwise.monitor.echo_trap import EchoTrap, Thresholds, detections
from turnwise_trust.copying import COPIED
from turnwise_trust.doctor.log import Log
from turnwise_trust.doctor.rules.base import Cause, Rule, cause, fallen, learns, outcome
from turnwise_trust.doctor.trends import change

COLLAPSED = 0.3
"""Share of its first third's that the entropy has come down to."""
DOUBLED = 2.0
VANISHED = 0.2
ERRORS = 0.5
REPETITION = ("repetition/ngrams", "repetition/words", "repetition/actions", "repetition/episodes")
MORE = 0.15
"""Rise of a share of repetition that counts."""


def entropy(log: Log) -> Iterable[Cause]:
    """Entropy that is gone, or that grows, while the outcome does not rise."""
    found = change(log.values("policy/entropy"))
    if found is None or learns(log):
        return
    if found.falls and found.factor < COLLAPSED:
        note = f"The entropy falls from {found}: what is sampled is nearly always the same."
        note += _since(log)
        weight = 0.72 if fallen(log) else 0.65
        yield cause(log, "entropy collapse", weight, note, change=found, example="latest")
    elif found.rises and found.factor > DOUBLED and fallen(log):
        note = f"The entropy grows from {found} while the outcome falls.{_since(log)}"
        yield cause(log, "entropy explosion", 0.68, note, change=found, example="latest")


def _since(log: Log) -> str:
    """Where the outcome was best, in a sentence."""
    if (down := fallen(log)) is None:
        return ""
    step, best, now = down
    return f" {outcome(log)} was best at step {step} ({best:.3g}) and is {now:.3g}."


def echo_trap(log: Log) -> Iterable[Cause]:
    """Signs of the Echo Trap (arXiv 2504.20073): rewards of a group alike, repetition, then a
    fall."""
    if learns(log):
        return
    rises = {name: change(log.values(name)) for name in REPETITION}
    more = {n: one for n, one in rises.items() if one and one.rises and one.difference > MORE}
    trap = _trap(log)
    if not more and trap is None:
        return
    signs = [f"{name} rises from {one}" for name, one in more.items()]
    signs += [str(trap)] if trap is not None else []
    if not more and not fallen(log):
        return
    figure = next(iter(more.values()), None)
    note = f"{'; '.join(signs)}.{_since(log)}"
    yield cause(log, "Echo Trap", 0.74, note, change=figure, example="repeating")


def _trap(log: Log) -> EchoTrap | None:
    """The first warning of turnwise's own detector, at any step."""
    names = ("reward/group_std", "reward/mean", "policy/entropy")
    table: dict[int, dict[str, float]] = {}
    for name in names:
        if name in log:
            for step, value in zip(*log.series[name], strict=True):
                table.setdefault(int(step), {"step": float(step)})[name] = float(value)
    history = [table[step] for step in sorted(table)]
    highest = max([1.0, *log.values("reward/mean").tolist()])
    return next(filter(None, detections(history, highest, Thresholds())), None)


def length(log: Log) -> Iterable[Cause]:
    """Episodes that grow or shrink while the outcome does not rise."""
    found = change(log.values("rollout/length_mean"))
    if found is None or learns(log):
        return
    if found.rises and found.factor > DOUBLED:
        cut = change(log.values("rollout/truncated"))
        more = f" Cut off: {cut}." if cut and cut.rises else ""
        note = f"Episodes grow from {found} tokens while the outcome does not rise.{more}"
        yield cause(log, "length explosion", 0.73, note, change=found, example="latest")
    elif found.falls and found.factor < 1 / DOUBLED:
        note = f"Episodes shrink from {found} tokens while the outcome does not rise."
        yield cause(log, "length collapse", 0.73, note, change=found, example="latest")


def tools(log: Log) -> Iterable[Cause]:
    """Tool calls that vanish, or that mostly fail."""
    calls, worked = change(log.values("rollout/tool_calls")), log.values("rollout/tool_success")
    if learns(log):
        return
    if calls and calls.falls and calls.factor < VANISHED:
        note = f"Tool calls of an episode fall from {calls}: the policy gives its tools up."
        yield cause(log, "tool calls vanish", 0.76, note, change=calls, example="latest")
    if len(worked) and worked.mean() < ERRORS:
        share = 1 - float(worked.mean())
        note = f"{share:.0%} of the tool calls are errors."
        yield cause(log, "tool errors", 0.6, note, share, ERRORS, "latest")


def parroting(log: Log) -> Iterable[Cause]:
    """More and more of what is written stood in an observation."""
    found = change(log.values(COPIED))
    if found is None or learns(log) or not found.rises or found.difference <= MORE:
        return
    note = f"The share of what is written that an observation showed rises from {found}."
    yield cause(log, "parroting", 0.7, note, change=found, example="latest")


RULES = (
    Rule("entropy", ("policy/entropy",), entropy),
    Rule("Echo Trap", (*REPETITION, "reward/group_std"), echo_trap),
    Rule("length", ("rollout/length_mean",), length),
    Rule("parroting", (COPIED,), parroting),
    Rule("tool calls", ("rollout/tool_calls", "rollout/tool_success"), tools),
)
