"""A reward that rises without what it was to pay for."""

from collections.abc import Iterable

from turnwise_trust.doctor.log import Log
from turnwise_trust.doctor.rules.base import Cause, Rule, answers, cause, forms, learns, outcome
from turnwise_trust.doctor.trends import Change, change, change_of_rates

GAIN = 0.1
"""Rise of a part, or of the reward, that is worth a word."""
SHARE = 0.2
"""Share of that rise which the outcome may lag behind."""
MORE_CALLS = 1.5
OFTEN, SELDOM = 0.3, 0.1
"""Success, and the share of it that right answers are: they cannot both be what is wanted."""
NOISE = 0.1
"""Share of repeated answers."""
CEILING = 0.95
HELD_OUT = ("validation/success", "validation/reward")


def format_gaming(log: Log) -> Iterable[Cause]:
    """The reward for form rises, the outcome does not."""
    answer = _outcome_apart(log)
    form = [(name, change(log.values(name))) for name in forms(log)]
    risen = [(name, one) for name, one in form if one and one.rises and one.difference > GAIN]
    if answer is None or not risen or not _lags(answer[1], risen[0][1].difference):
        return
    name, found = risen[0]
    note = f"{name} rises from {found}, {answer[0]} goes from {answer[1]}: form alone is paid."
    yield cause(log, "format gaming", 0.9, note, change=found, example="best")


def _outcome_apart(log: Log) -> tuple[str, Change] | None:
    """The outcome that rises least, among those that the log tells from the reward as a whole: a
    verifier's success may be cheated while answers that match stay away. One that is at its best
    from the beginning has no room to rise."""
    names = ("rollout/success", *answers(log))
    changes = [(name, change(log.values(name))) for name in names]
    known = [(name, one) for name, one in changes if one and (one.falls or one.before < CEILING)]
    return min(known, key=lambda pair: pair[1].high, default=None)


def _lags(found: Change, rise: float) -> bool:
    """Whether a number surely rises by less than a share of another's rise."""
    return found.high < SHARE * rise


def parting_parts(log: Log) -> Iterable[Cause]:
    """The reward rises while success falls, or does not move at all."""
    answer, reward = _outcome_apart(log), change(log.values("reward/mean"))
    if answer is None or reward is None:
        return
    name, found = answer
    risen = reward.rises and reward.difference > GAIN
    if risen and (found.falls or _lags(found, reward.difference)):
        note = f"The reward rises from {reward}, {name} goes from {found}: something else is paid."
        yield cause(log, "reward without success", 0.85, note, change=reward, example="best")
    elif _success_alone(log, found):
        note = (
            f"The verifier calls {log.mean('rollout/success'):.0%} a success from the beginning, "
            f"and {name} goes from {found}: it accepts what is not right."
        )
        figure = log.mean("rollout/success")
        yield cause(log, "reward without success", 0.8, note, figure, example="best")


def _success_alone(log: Log, found: Change) -> bool:
    """Whether success is frequent, and the answers that match are a small share of it."""
    return log.mean("rollout/success") > OFTEN and max(found.before, found.after) < (
        SELDOM * log.mean("rollout/success")
    )


def tool_hacking(log: Log) -> Iterable[Cause]:
    """Calls that multiply without an outcome."""
    calls = change(log.values("rollout/tool_calls"))
    name = outcome(log)
    found = change(log.values(name)) if name else None
    if calls is None or found is None or found.rises:
        return
    if calls.rises and calls.factor > MORE_CALLS and calls.difference > 0.5:
        note = f"Tool calls of an episode rise from {calls}, {name} goes from {found}."
        yield cause(log, "tool-call hacking", 0.78, note, change=calls, example="latest")


def held_out(log: Log) -> Iterable[Cause]:
    """The reward in training rises, and on held-out tasks it falls."""
    reward = change(log.values("reward/mean"))
    for name in HELD_OUT:
        found = change(log.values(name)) or _of_few(log, name)
        if found is None or reward is None or not reward.rises or reward.difference < GAIN:
            continue
        if found.falls:
            note = (
                f"The reward in training rises from {reward}, {name} falls from {found}: the "
                "verifier is exploited, or the tasks are learned by heart."
            )
            yield cause(log, "held-out success", 0.88, note, change=found, example="best")
            return


def _of_few(log: Log, name: str) -> Change | None:
    """The change over evaluations that are few, where it is known of how many episodes they are."""
    if name != "validation/success":
        return None
    return change_of_rates(log.values(name), log.values("validation/n"))


def noise(log: Log) -> Iterable[Cause]:
    """Answers that get another reward when they are given again."""
    values = log.values("reward/disagreement")
    if len(values) and values.mean() > NOISE and not learns(log):
        share = float(values.mean())
        note = (
            f"An answer that is given again in its group gets another reward in {share:.0%} of the "
            "cases: the verifier, or what the text does not show, is noise."
        )
        yield cause(log, "reward noise", 0.66, note, share, NOISE, "repeating")


def ceiling(log: Log) -> Iterable[Cause]:
    """An evaluation that is at its best from the beginning."""
    values = log.values("validation/success")
    if len(values) > 1 and values.min() >= CEILING:
        note = f"Held-out success is {values.min():.1%} or more from the first evaluation on."
        yield cause(log, "evaluation at its ceiling", 0.5, note, float(values.min()), CEILING)


RULES = (
    Rule("format gaming", ("reward/parts/",), format_gaming),
    Rule("reward without success", ("rollout/success", "reward/parts/"), parting_parts),
    Rule("tool-call hacking", ("rollout/tool_calls",), tool_hacking),
    Rule("held-out success", HELD_OUT, held_out),
    Rule("reward noise", ("reward/disagreement",), noise),
    Rule("evaluation at its ceiling", ("validation/success",), ceiling),
)
