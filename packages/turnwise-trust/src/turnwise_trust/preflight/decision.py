"""The decision whether to train with RL: a table of rules over the facts, the first that holds.

A rule holds by the estimates, and is certain where the whole 95% interval of each of its facts lies
on its side of the bound; one that blames the environment holds only where it is certain. What comes
first makes all after it meaningless: with a broken verifier neither success nor failure says
anything of the policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from turnwise.evaluation.evaluate import FEWEST
from turnwise_trust.preflight.facts import Facts, Rate

NOISY = 0.9
"""Agreement of repeated verdicts below which the verifier is to be mended: with one verdict in
twenty turned round, two agree in 90%, a tenth of what a group's rewards tell is lost (1 - 2 * 0.05
of every advantage is left), and no policy can be seen above 95%."""
COIN = 0.2
"""Cohen's kappa below which a verifier says next to nothing ("slight" by Landis and Koch 1977,
Biometrics 33): four fifths of what it pays for is luck."""
FAILING_ORACLE = 0.95
"""Success of the environment's own oracle below which its verifier or its labels are wrong more
often than the effects are large that one trains for."""
MOSTLY = 0.5
"""Share of episodes from which on something is the usual case."""
ABLE = 0.2
"""Success from which on groups teach: with a rate of 0.2, 83% of groups of 8 have both outcomes."""
LABELLED = 0.9
"""Share of tasks with accepted answers from which on they are a data set to imitate."""
LONG = 10
"""Turns from which on one outcome is too little: it is spread over all turns, and what it says of
one of them falls with the root of their number, to less than a third."""
RARE = 0.2
"""Success below which outcomes alone are too seldom for a long episode: see ABLE."""


class Verdict(StrEnum):
    """The advice, in words."""

    PROMPT = "Mend the prompt"
    IMITATE = "Imitate first"
    ENVIRONMENT = "Mend the environment"
    RL = "RL"
    TURNS = "RL with turn rewards"
    DONT = "Don't"
    UNDECIDED = "Undecided"


GO = (Verdict.RL, Verdict.TURNS)
"""The verdicts with which one may train."""


class Condition(NamedTuple):
    """A fact is at least its bound, or is less: a number, or another bound by its name."""

    fact: str
    bound: float | str
    above: bool

    def holds(self, value: float, bound: float) -> bool:
        """Compare."""
        return (value >= bound) == self.above

    def worst(self, rate: Rate) -> float:
        """The end of the interval that is nearest to the bound."""
        return rate.low if self.above else rate.high


Above, Below = partial(Condition, above=True), partial(Condition, above=False)


class Rule(NamedTuple):
    """A row of the table: the verdict where all conditions hold, why, and what to do. In texts a
    fact's name in braces is its figure."""

    verdict: Verdict
    when: Sequence[Condition]
    reason: str
    remedy: str
    certainly: bool = False
    """Whether the intervals have to lie beyond the bounds, too."""


RULES: Sequence[Rule] = (
    Rule(
        Verdict.ENVIRONMENT,
        [Above("ungraded", "allowed ungraded")],
        "{ungraded:.0%} of the episodes have no grade, and a run stops at {allowed ungraded:.0%}",
        "See the first problem below, and mend what raises or hangs.",
        certainly=True,
    ),
    Rule(
        Verdict.DONT,
        # Where nearly all verdicts are alike, one that is turned round makes kappa 0.
        [Below("beyond chance", COIN), Below("agreement", NOISY)],
        "there is no verifier: of the same actions, judged twice, it says the same in "
        "{agreement:.0%}, hardly more than two coins",
        "Find a check that depends on what the agent did; until then prompt, or imitate.",
    ),
    Rule(
        Verdict.ENVIRONMENT,
        [Below("agreement", NOISY)],
        "the verdict is noise in part: of the same actions, judged twice, it says the same in "
        "{agreement:.0%}",
        "Take chance, clocks and shared state out of reset(), tools and verify().",
        certainly=True,
    ),
    Rule(
        Verdict.ENVIRONMENT,
        [Above("idle", "allowed idle")],
        "an agent that does nothing solves {idle:.0%} of the tasks",
        "Have verify() ask for what only acting can bring about: turnwise audit shows how.",
        certainly=True,
    ),
    Rule(
        Verdict.ENVIRONMENT,
        [Below("oracle", "least oracle")],
        "the environment's own oracle solves {oracle:.0%} of the tasks",
        "Mend the verifier, or the labels that it refuses: turnwise audit names them.",
        certainly=True,
    ),
    Rule(
        Verdict.DONT,
        [Above("success", "ceiling")],
        "the untrained policy succeeds in {success:.0%}, so there is no room for an effect that "
        "the evaluation is to show",
        "Choose harder tasks.",
    ),
    Rule(
        Verdict.DONT,
        [
            Below("tools", 1),
            Above("answers alone", LABELLED),
            Above("labels", LABELLED),
            Below("success", "ceiling"),
        ],
        "each episode is a question and its answer, without a tool or a thought, and the tasks "
        "have their answers: a label teaches in one pass what RL would have to guess",
        "Imitate the answers (docs/how-to/cold_start.md), or put them into the prompt.",
    ),
    Rule(
        Verdict.PROMPT,
        [Above("malformed", MOSTLY), Above("in form", ABLE)],
        "{malformed:.0%} of the episodes end in a turn that cannot be read, while those in form "
        "succeed in {in form:.0%}: the policy can do the task, and not the syntax",
        "Show the form (scaffold.options.examples or instructions), or choose a scaffold that the "
        "model knows.",
    ),
    Rule(
        Verdict.PROMPT,
        [Above("malformed", MOSTLY), Above("stated", ABLE)],
        "{malformed:.0%} of the episodes end in a turn that cannot be read, and an accepted answer "
        "stands in {stated:.0%} of those: the policy can do the task, and not the syntax",
        "Show the form (scaffold.options.examples or instructions), or choose a scaffold that the "
        "model knows.",
    ),
    Rule(
        Verdict.PROMPT,
        [Above("truncated", MOSTLY), Above("in form", ABLE)],
        "a budget cuts off {truncated:.0%} of the episodes, while the others succeed in "
        "{in form:.0%}",
        "Ask for shorter turns, or raise the budget that the outcomes below name.",
    ),
    Rule(
        Verdict.TURNS,
        [Above("turns", LONG), Below("success", RARE), Above("turn signal", MOSTLY)],
        "an episode has {turns:.0f} turns and succeeds in {success:.1%}, too seldom for one "
        "outcome to teach each turn, while parts of the reward differ in {turn signal:.0%} of the "
        "groups",
        "Give turns their own credit: reward.parts of turns, and an algorithm such as mt_grpo or "
        "gigpo (turnwise algorithms).",
    ),
    Rule(
        Verdict.ENVIRONMENT,
        [Below("signal", "enough signal"), Above("mixed successes", "enough signal")],
        "{mixed successes:.0%} of the groups have both successes and failures, and their rewards "
        "differ in {signal:.0%}: what is paid for is not success",
        "Have the verdict's reward, or the recipe's reward.outcome, follow its success.",
    ),
    Rule(
        Verdict.IMITATE,
        [Below("signal", "enough signal"), Below("solved", "enough signal")],
        "{solved:.1%} of the tasks were solved in any of their episodes, and {signal:.1%} of the "
        "groups have rewards to compare: most steps (of {groups of a step:.0f}) teach nothing",
        "{demonstrations}",
    ),
    Rule(
        Verdict.DONT,
        [Below("signal", "enough signal")],
        "{signal:.1%} of the groups have rewards to compare: tasks are solved in all of their "
        "episodes ({success:.0%}), or in none",
        "Choose tasks between, a larger train.group_size, or a higher rollout.temperature.",
    ),
    Rule(
        Verdict.RL,
        [Above("signal", "enough signal")],
        "{signal:.0%} of the groups have rewards to compare, and the policy succeeds in "
        "{success:.1%}",
        "",
    ),
)
"""The table."""


@dataclass(frozen=True)
class Decision:
    """A verdict, with its reasons."""

    verdict: Verdict
    reason: str
    remedy: str
    doubts: Sequence[str]
    """Each fact that the verdict rests on, and whose interval reaches over its bound."""

    @property
    def sentence(self) -> str:
        """All of it."""
        doubts = "; ".join(self.doubts)
        doubt = (
            f"Not certain: {doubts}: --seconds, --groups and --keep play more." if doubts else ""
        )
        return " ".join(filter(None, (f"{self.verdict}: {self.reason}.", self.remedy, doubt)))


def decide(facts: Facts, bounds: Mapping[str, float], demonstrations: str = "") -> Decision:
    """The verdict. `bounds` are those that depend on the recipe, by name; `demonstrations` says
    where they would come from, and how many."""
    groups = int(facts["groups"].figure)
    if groups < FEWEST:
        reason = (
            f"{groups} groups cannot tell a policy that succeeds every other time from one that "
            f"always or never does; {FEWEST} or more can"
        )
        more = "Raise --seconds or --groups, go on with --keep FOLDER, or have more tasks."
        return Decision(Verdict.UNDECIDED, reason, more, [])
    rule = next((rule for rule in RULES if _holds(rule, facts, bounds)), None)
    if rule is None:
        reason = "no group has two episodes with a grade to compare"
        return Decision(Verdict.UNDECIDED, reason, "Raise train.group_size, or --seconds.", [])
    said = {name: rate.figure for name, rate in facts.items()} | dict(bounds)
    return Decision(
        rule.verdict,
        rule.reason.format_map(said),
        rule.remedy.format(demonstrations=demonstrations),
        _doubts(rule, facts, bounds),
    )


def bound_of(condition: Condition, bounds: Mapping[str, float]) -> float:
    """The number that a condition compares with."""
    given = condition.bound
    return bounds[given] if isinstance(given, str) else given


def _holds(rule: Rule, facts: Facts, bounds: Mapping[str, float]) -> bool:
    if any(one.fact not in facts for one in rule.when):
        return False
    held = all(one.holds(facts[one.fact].figure, bound_of(one, bounds)) for one in rule.when)
    return held and not (rule.certainly and any(_doubts(rule, facts, bounds)))


def _doubts(rule: Rule, facts: Facts, bounds: Mapping[str, float]) -> list[str]:
    return list(filter(None, (_doubt(one, facts, bounds) for one in rule.when)))


def _doubt(condition: Condition, facts: Facts, bounds: Mapping[str, float]) -> str:
    """The sentence of a condition whose interval reaches over the bound; empty for none."""
    rate, bound = facts[condition.fact], bound_of(condition, bounds)
    if condition.holds(condition.worst(rate), bound):
        return ""
    interval = f"{rate.low:.2g} to {rate.high:.2g}"
    return f"the bound of {condition.fact} is {bound:.2g}, and its interval {interval}"
