"""Environments by name: the built-in ones, and a user's own by file or module.

Listing loads none of them: each is imported when it is made.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.config import LatencyConfig, Recipe, parse_override, set_key
from turnwise.environments.base import Environment, Part
from turnwise.environments.equipped import equipped
from turnwise.environments.guarded import guarded
from turnwise.environments.slow import slow
from turnwise.errors import ConfigError
from turnwise.options import checked_options
from turnwise.registry import Registry


def _is_environment(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Environment) and value is not Environment


ENVIRONMENTS: Registry[type[Environment]] = Registry(
    "environment", _is_environment, "derive the class from Environment"
)
for _name, _target, _line in (
    (
        "bandit",
        "games.bandit:Bandit",
        "pull one of two named arms: a sure one, and one that sometimes pays more",
    ),
    (
        "code",
        "code.environment:Code",
        "write a function, judged by hidden calls in a sandbox; or repair QuixBugs' programs",
    ),
    (
        "deep_research",
        "deep_research.environment:DeepResearch",
        "find the one class that meets several conditions, by browsing Python's documentation",
    ),
    (
        "desk",
        "desk.environment:ServiceDesk",
        "serve a shop's customers by a policy: a database to read and write, a user",
    ),
    (
        "frozen_lake",
        "games.frozen_lake:FrozenLake",
        "cross a frozen lake shown as text (gymnasium's); needs the extra games",
    ),
    (
        "function_calling",
        "function_calling.environment:FunctionCalling",
        "do what a user asks with a handful of typed tools, over several requests",
    ),
    (
        "gymnasium",
        "adapters.gymnasium:Gymnasium",
        "any environment of gymnasium with discrete actions, as text; needs the extra games",
    ),
    (
        "harbor",
        "adapters.harbor:Harbor",
        "do the task folders of Harbor and Terminal-Bench that hold in the sandbox",
    ),
    (
        "inspect",
        "adapters.inspect_ai:Inspect",
        "dataset and scorer of one of Inspect's tasks, with tools; needs the extra inspect",
    ),
    (
        "joint",
        "joint:Joint",
        "several environments in one run, with a share and budgets for each",
    ),
    (
        "long_walk",
        "games.long_walk:LongWalk",
        "find the way through 300 rooms, a tool call each, by a rule that is given once",
    ),
    (
        "mathematics",
        "mathematics.environment:Mathematics",
        "solve word problems and sums with a calculator, Python or neither; or GSM8K's format",
    ),
    (
        "multi_tool",
        "multi_tool.environment:MultiTool",
        "answer questions that need a search, a calculation, both, or neither",
    ),
    (
        "openenv",
        "adapters.openenv:OpenEnv",
        "act in any environment behind an OpenEnv server; needs the extra openenv",
    ),
    (
        "own_desk",
        "desk.own:OwnDesk",
        "serve your own customers: tau-bench's task format, your tables, tools and policy",
    ),
    (
        "proofs",
        "proofs.environment:Proofs",
        "prove theorems of propositional logic in natural deduction, with a checker",
    ),
    (
        "reasoning_gym",
        "adapters.reasoning_gym:ReasoningGym",
        "questions of reasoning-gym's datasets; needs the extra reasoning-gym",
    ),
    (
        "recorded_calls",
        "function_calling.recorded:RecordedCalls",
        "make the next tool calls of recorded dialogues: ToolRL's data, or yours in its format",
    ),
    (
        "repair",
        "repair.environment:Repair",
        "repair a git repository with shell and file tools: made ones, SWE-bench's, QuixBugs'",
    ),
    (
        "search",
        "search.environment:SearchEnvironment",
        "answer multi-hop questions by searching documents: Python's own, or yours",
    ),
    (
        "shell",
        "shell.environment:Shell",
        "change a folder, or ask it, in a shell: made tasks, or AgentBench's OS interaction",
    ),
    (
        "shop",
        "shop.environment:Shop",
        "find and buy what a request describes: WebShop's style and reward, made-up products",
    ),
    (
        "shop_web",
        "shop.web:ShopWeb",
        "find and buy products on the web pages of shop: plain, or in Chromium",
    ),
    (
        "sokoban",
        "games.sokoban:Sokoban",
        "push boxes onto targets: small boards made here, or Boxoban's files",
    ),
    (
        "sql",
        "sql.environment:SqlEnvironment",
        "ask tables or change them in SQL: made ones, or AgentBench's dbbench",
    ),
    (
        "textworld",
        "adapters.textworld:TextWorld",
        "text adventures of TextWorld, made from seeds or yours; needs the extra textworld",
    ),
    (
        "verifiers",
        "adapters.verifiers:Verifiers",
        "tasks of one turn from a taskset of verifiers; needs the extra verifiers",
    ),
    (
        "web_forms",
        "web_forms.environment:WebForms",
        "fill in forms and find the way on small web sites: plain, or in Chromium",
    ),
):
    ENVIRONMENTS.register(_name, f"turnwise.environments.{_target}", _line)


def environment_names() -> dict[str, str]:
    """The built-in environments with a line on each, in alphabetical order."""
    lines = ENVIRONMENTS.descriptions()
    return {name: lines[name] for name in sorted(ENVIRONMENTS.names())}


def named_with_options(words: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Environments with their options, of words as they stand on a command line: a name, then its
    options as `key=value`.

    Raises ConfigError for an option before any name.
    """
    named: list[tuple[str, dict[str, Any]]] = []
    for word in words:
        if not _OPTION.match(word):
            named.append((word, {}))
        elif not named:
            raise ConfigError(f"{word}: name the environment first, then its options")
        else:
            set_key(named[-1][1], *parse_override(word))
    return named


def make_environment(
    name: str,
    options: Mapping[str, Any],
    consequential: Mapping[str, Any] = {},
    sandbox: Mapping[str, Any] = {},
    tools: Sequence[str] = (),
    latency: LatencyConfig | None = None,
) -> Environment:
    """Build the environment that a recipe names, with the recipe's further tools, its rules for
    consequential ones, its latency, and its table `sandbox` as the constructor's argument of that
    name.

    `name` is one that `ENVIRONMENTS` finds; `options` are arguments of its constructor. Raises
    ConfigError for what is not there or does not fit; an error inside the user's own file goes
    through.
    """
    kind = ENVIRONMENTS.get(name)
    if sandbox:
        if "sandbox" not in inspect.signature(kind).parameters or "sandbox" in options:
            raise ConfigError(
                f"environment {name} takes no table [sandbox]: remove it from the recipe"
            )
        options = {**options, "sandbox": sandbox}
    try:
        checked = checked_options(kind, options)
    except ConfigError as error:
        raise ConfigError(f"environment {name}: {error}") from None
    return guarded(slow(equipped(kind(**checked), tools), latency), consequential)


def environment_of(recipe: Recipe) -> Environment:
    """The environment that a recipe names; raises as `make_environment`."""
    chosen = recipe.environment
    made = make_environment(
        chosen.name,
        chosen.options,
        chosen.consequential,
        recipe.sandbox,
        chosen.tools,
        chosen.latency,
    )
    if chosen.needs is not None:
        made.needs = chosen.needs
    return made


def needs_of(recipe: Recipe) -> Mapping[Part, Mapping[str, float]]:
    """The `needs` of the environment that a recipe names, which is not made for it. Raises
    ConfigError for what is not there."""
    chosen = recipe.environment
    return ENVIRONMENTS.get(chosen.name).needs if chosen.needs is None else chosen.needs


_OPTION = re.compile(r"[\w.-]+=")
