"""The parts of an algorithm by name: each is a function, its numbers, and what it needs.

A part is declared beside its function, by the decorator `part`; its numbers are the arguments with
defaults of its signature, their ranges stand in the annotations. A recipe can name a function of
one's own in the same way (`turnwise/registry.py`), declared or not. Nothing here or in the
functions' modules loads torch, so that all of it can be printed at once.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from turnwise.conflicts import Need
from turnwise.errors import ConfigError
from turnwise.ranges import Range
from turnwise.registry import Registry, load_function

BYPASS = "bypass"
PLAIN_SUM = "sequence_mean_token_sum"


class Requirement(StrEnum):
    """The signals that a part needs, besides the trajectories' rewards."""

    CRITIC = "critic"
    TURN_REWARDS = "turn_rewards"
    PROCESS_REWARDS = "process_rewards"
    STATES = "states"
    TEACHER = "teacher"
    SELF_TEACHER = "self_teacher"
    """The policy's own average, in a term of the loss; so is the next."""
    FEEDBACK_TEACHER = "feedback_teacher"
    HINDSIGHT = "hindsight"
    INFORMATION_GAIN = "information_gain"
    SCORE_NORMS = "score_norms"
    SAMPLER = "sampler"
    REPLAY = "replay"
    WORLD_MODEL = "world_model"
    ACCEPTANCE = "acceptance"
    RESTORABLE = "restorable"
    """An environment whose episodes can go on from a snapshot."""
    GREEDY = "greedy"
    """A greedy episode beside each group; this and what follows is given by a rollout."""
    BRANCHES = "branches"
    TURN_VALUES = "turn_values"

    @property
    def words(self) -> str:
        return _WORDS.get(self, self.replace("_", " "))


_WORDS = {
    Requirement.CRITIC: "a critic",
    Requirement.TEACHER: "a teacher",
    Requirement.SELF_TEACHER: "a self-teacher",
    Requirement.FEEDBACK_TEACHER: "a feedback teacher",
    Requirement.HINDSIGHT: "probabilities in hindsight",
    Requirement.INFORMATION_GAIN: "an information gain",
    Requirement.SAMPLER: "the sampler's distributions",
    Requirement.RESTORABLE: Need.RESTORABLE,
    Requirement.GREEDY: "greedy episodes beside groups",
}

SELF_TEACHERS = frozenset({Requirement.SELF_TEACHER, Requirement.FEEDBACK_TEACHER})
SECOND_MODELS = SELF_TEACHERS | {
    *(Requirement.CRITIC, Requirement.PROCESS_REWARDS, Requirement.SAMPLER),
    *(Requirement.REPLAY, Requirement.WORLD_MODEL, Requirement.ACCEPTANCE),
}
"""Signals of something that is kept beside the policy; an algorithm has a place for one."""
GIVEN_BY_ROLLOUTS = frozenset({Requirement.GREEDY, Requirement.BRANCHES, Requirement.TURN_VALUES})


class Trait(StrEnum):
    """The properties of a part that matter when an algorithm is put together."""

    UNGROUPED = "ungrouped"
    """An estimator that compares nothing within a group, so that a group may be of one."""
    NO_SHAPING = "no shaping"
    """An estimator for which a penalty among the rewards makes no sense: for rewards of 0 and 1,
    named rewards, and those that would not see it."""
    NO_PENALTY = "no penalty"
    """An estimator for which a KL penalty makes no sense: those without shaping; those that divide
    by the deviation of all they compare, where any penalty becomes as large as the rewards; and
    where rewards per token, or trees' shared parts, are something else."""
    BY_ADVANTAGE = "by advantage"
    """An objective without a gradient where the advantage is 0."""
    NAMED_REWARDS = "named rewards"
    """An estimator that adds up named parts of the reward itself, with weights of its own."""
    PLAIN_AT_ONE = "plain at one"
    """An objective whose gradient at ratio 1 is the policy gradient's."""


@dataclass(frozen=True)
class Number:
    """A number that a part takes: low <= value <= high, and its default."""

    default: float
    low: float = 0.0
    high: float = math.inf
    whole: bool = False

    def accepts(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.low <= value <= self.high and (not self.whole or float(value).is_integer())

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.high == math.inf:
            return kind if self.low == -math.inf else f"{kind} of {self.low:g} or more"
        return f"{kind} from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Weights:
    """A table that a part takes: names, each with its weight; a recipe has to give it."""

    default: ClassVar[Mapping[str, float]] = {}

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            isinstance(weight, int | float)
            and not isinstance(weight, bool)
            and math.isfinite(weight)
            and weight != 0
            for weight in value.values()
        )

    def __str__(self) -> str:
        return "a table of names and weights other than 0, as in {exact_match = 1.0}"


Setting = Number | Weights
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Part:
    """One choice of an algorithm. Example: PARTS["estimator"].get("rloo")."""

    choice: str
    """The choice that it is an option of, such as "estimator"."""
    name: str
    function: Callable[..., Any]
    """The function, with the arguments that `PARTS` states for this choice, and numbers by name."""
    numbers: Mapping[str, Setting]
    description: str = ""
    """The part in a few words, and the paper."""
    needs: frozenset[Requirement] = frozenset()
    conditions: tuple[str, ...] = ()
    """Needs of the other choices, of recipe and environment (`conflicts.Need`)."""
    gives: frozenset[Requirement] = frozenset()
    """Signals that a rollout gives the estimator, which has to need one of them."""
    traits: frozenset[Trait] = frozenset()
    check_size: Callable[..., None] | None = None
    """A rollout's (group size, **numbers): raises ConfigError for groups that it cannot play."""


def part(
    choice: str,
    name: str = "",
    description: str = "",
    *,
    of: Callable[[Any], Any] | None = None,
    needs: Iterable[Requirement] = (),
    conditions: Iterable[str] = (),
    gives: Iterable[Requirement] = (),
    traits: Iterable[Trait] = (),
    check_size: Callable[..., None] | None = None,
) -> Callable[[Function], Function]:
    """Declare the decorated function a part of an algorithm. `name` is for built-in parts. `of`
    makes the choice's function from a simpler one, as those in `estimators.py`. Raises ConfigError
    for arguments with defaults that are no numbers."""

    def declare(function: Function) -> Function:
        declared = Part(
            choice,
            name,
            of(function) if of else function,
            _numbers(function),
            description or _first_line(function),
            frozenset(needs),
            tuple(conditions),
            frozenset(gives),
            frozenset(traits),
            check_size,
        )
        setattr(function, _DECLARED, declared)
        return function

    return declare


class PartRegistry(Registry[Part]):
    """The parts of one choice. To find a built-in one, the given modules are imported in turn until
    it is there; a wing's are imported last."""

    def __init__(self, choice: str, arguments: int, *modules: str) -> None:
        """`arguments` is how many the function gets before its numbers."""
        super().__init__(choice, callable, "give a function")
        self._arguments, self._modules = arguments, list(modules)
        self._declared: dict[str, Part] = {}

    def names(self) -> list[str]:
        return list(dict.fromkeys([*self._all_declared(), *super().names()]))

    def descriptions(self) -> dict[str, str]:
        declared = {name: part.description for name, part in self._all_declared().items()}
        return declared | {k: d for k, d in super().descriptions().items() if k not in declared}

    def is_built_in(self, name: str) -> bool:
        return self._find_declared(name) is not None or name in self._known()

    def check(self, name: str) -> None:
        if self._find_declared(name) is None:
            super().check(name)

    def get(self, name: str) -> Part:
        """See Registry; also raises ConfigError for a function that cannot be such a part."""
        declared = self._find_declared(name)
        if declared is not None:
            return declared
        found, of_wings = super().get(name), self._known()
        if name not in of_wings:
            return found
        # Loaded by its address, a wing's part has that as its name.
        return replace(found, name=name, description=of_wings[name].description)

    def _find_declared(self, name: str) -> Part | None:
        """The core's part of that name, imported if need be; None where there is none."""
        # A name with a colon is of a user's own file or module: nothing is imported to look for it.
        while name not in self._declared and ":" not in name and self._modules:
            module = import_module(f"turnwise.{self._modules.pop(0)}")
            for value in vars(module).values():
                declared: Part | None = getattr(value, _DECLARED, None)
                if inspect.isfunction(value) and declared and declared.choice == self.kind:
                    self._declared[declared.name] = declared
        return self._declared.get(name)

    def _all_declared(self) -> dict[str, Part]:
        self._find_declared("")  # no part has this name: all modules are imported
        return self._declared

    def _accepted(self, target: str, found: Any) -> Part:
        function = super()._accepted(target, found)
        declared: Part | None = getattr(function, _DECLARED, None)
        if declared is not None:
            if declared.choice != self.kind:
                raise ConfigError(f"{target} is of {declared.choice}, not of {self.kind}")
            return replace(declared, name=target)
        own: Any = function
        leading = [entry for entry in _parameters(own) if not _is_number(entry)]
        if len(leading) != self._arguments:
            raise ConfigError(
                f"{target}: {self.kind} is a function of {self._arguments} arguments and numbers "
                f"with defaults, and this one has {len(leading)} without: "
                "see docs/start/own_algorithm.md"
            )
        return Part(self.kind, target, own, _numbers(own), _first_line(own))


def declared_part(name: str) -> Part:
    """The part that `file.py:Name` or `package.module:Name` is declared; else ConfigError."""
    declared: Part | None = getattr(load_function(name, "part"), _DECLARED, None)
    if declared is None:
        raise ConfigError(
            f"{name}: nothing says which choice it is for: decorate it, as with "
            '@part("estimator"); a recipe can name it without'
        )
    return declared


PARTS: dict[str, PartRegistry] = {
    registry.kind: registry
    for registry in (
        PartRegistry(
            "estimator",
            1,
            "algorithms.advantages",
            "algorithms.outcome_advantages",
            "algorithms.turns",
            "algorithms.values",
        ),
        PartRegistry("objective", 1, "algorithms.objectives"),
        PartRegistry("ratio_level", 1, "algorithms.losses"),
        PartRegistry("aggregation", 3, "algorithms.aggregation"),
        PartRegistry("group_filter", 1, "algorithms.filters"),
        PartRegistry("trajectory_filter", 1, "algorithms.filters"),
        PartRegistry("reward_shaping", 2, "algorithms.filters"),
        PartRegistry("token_filter", 2, "algorithms.filters"),
        PartRegistry("divergence", 3, "algorithms.kl"),
        PartRegistry("correction", 1, "algorithms.corrections"),
        PartRegistry("extension", 0, "algorithms.losses"),
        PartRegistry("rollout", 5, "rollout.collect"),
    )
}
"""Every choice of an algorithm, and what there is to choose from, imported when it is asked for."""

_DECLARED = "turnwise_part"


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _is_number(parameter: inspect.Parameter) -> bool:
    return parameter.default is not parameter.empty or parameter.kind is parameter.KEYWORD_ONLY


def _numbers(function: Callable[..., Any]) -> dict[str, Setting]:
    return {
        entry.name: _setting(function, entry)
        for entry in _parameters(function)
        if _is_number(entry)
    }


def _setting(function: Callable[..., Any], parameter: inspect.Parameter) -> Setting:
    """The values that a recipe may give for an argument, from its annotation and default."""
    annotation = parameter.annotation
    if isinstance(annotation, str):  # as all are under `from __future__ import annotations`
        annotation = eval(annotation, getattr(function, "__globals__", {}))
    if get_origin(annotation) is Mapping:
        return Weights()
    kind, *further = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    default = parameter.default
    if kind not in (int, float, parameter.empty) or type(default) not in (int, float):
        raise ConfigError(
            f"{function.__name__}: {parameter.name} must be an int or a float with a default, as "
            f"in {parameter.name}: Annotated[float, Range(0, 1)] = 0.5"
        )
    bounds = next((entry for entry in further if isinstance(entry, Range)), Range())
    number = Number(default, bounds.low, bounds.high, whole=kind is int)
    if not number.accepts(default):
        raise ConfigError(f"{function.__name__}: the default of {parameter.name} is not {number}")
    return number


def _first_line(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]
