"""Environments by name: the built-in ones, and a user's own by file or module.

Listing loads none of them: each is imported when it is made.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from turnwise.config import apply_override
from turnwise.environments.base import Environment
from turnwise.environments.guarded import guarded
from turnwise.environments.modules import load_module
from turnwise.errors import ConfigError, unknown_name, wrong_value


@dataclass(frozen=True)
class Registered:
    """Where a built-in environment is, and what it is in one line."""

    target: str
    description: str


ENVIRONMENTS = {
    "bandit": Registered(
        "turnwise.environments.games.bandit:Bandit",
        "pull one of two named arms: a sure one, and one that sometimes pays more",
    ),
    "code": Registered(
        "turnwise.environments.code.environment:Code",
        "write a function, judged by hidden calls in a sandbox; or repair QuixBugs' programs",
    ),
    "deep_research": Registered(
        "turnwise.environments.deep_research.environment:DeepResearch",
        "find the one class that meets several conditions, by browsing Python's documentation",
    ),
    "desk": Registered(
        "turnwise.environments.desk.environment:ServiceDesk",
        "serve a shop's customers by a policy: a database to read and write, a user",
    ),
    "frozen_lake": Registered(
        "turnwise.environments.games.frozen_lake:FrozenLake",
        "cross a frozen lake shown as text (gymnasium's); needs the extra games",
    ),
    "function_calling": Registered(
        "turnwise.environments.function_calling.environment:FunctionCalling",
        "do what a user asks with a handful of typed tools, over several requests",
    ),
    "gymnasium": Registered(
        "turnwise.environments.adapters.gymnasium:Gymnasium",
        "any environment of gymnasium with discrete actions, as text; needs the extra games",
    ),
    "harbor": Registered(
        "turnwise.environments.adapters.harbor:Harbor",
        "do the task folders of Harbor and Terminal-Bench that hold in the sandbox",
    ),
    "inspect": Registered(
        "turnwise.environments.adapters.inspect_ai:Inspect",
        "dataset and scorer of one of Inspect's tasks, with tools; needs the extra inspect",
    ),
    "long_walk": Registered(
        "turnwise.environments.games.long_walk:LongWalk",
        "find the way through 300 rooms, a tool call each, by a rule that is told once",
    ),
    "mathematics": Registered(
        "turnwise.environments.mathematics.environment:Mathematics",
        "solve word problems with a calculator: made ones, or yours in GSM8K's format",
    ),
    "multi_tool": Registered(
        "turnwise.environments.multi_tool.environment:MultiTool",
        "answer questions that need a search, a calculation, both, or neither",
    ),
    "openenv": Registered(
        "turnwise.environments.adapters.openenv:OpenEnv",
        "act in any environment behind an OpenEnv server; needs the extra openenv",
    ),
    "own_desk": Registered(
        "turnwise.environments.desk.own:OwnDesk",
        "serve your own customers: tau-bench's task format, your tables, tools and policy",
    ),
    "reasoning_gym": Registered(
        "turnwise.environments.adapters.reasoning_gym:ReasoningGym",
        "questions of reasoning-gym's datasets; needs the extra reasoning-gym",
    ),
    "recorded_calls": Registered(
        "turnwise.environments.function_calling.recorded:RecordedCalls",
        "make the next tool calls of recorded dialogues: ToolRL's data, or yours in its format",
    ),
    "repair": Registered(
        "turnwise.environments.repair.environment:Repair",
        "repair a git repository with shell and file tools: made ones, SWE-bench's, QuixBugs'",
    ),
    "search": Registered(
        "turnwise.environments.search.environment:SearchEnvironment",
        "answer multi-hop questions by searching documents: Python's own, or yours",
    ),
    "shell": Registered(
        "turnwise.environments.shell.environment:Shell",
        "change a folder, or ask it, in a shell: made tasks, or AgentBench's OS interaction",
    ),
    "shop": Registered(
        "turnwise.environments.shop.environment:Shop",
        "find and buy what a request describes: WebShop's style and reward, made-up products",
    ),
    "shop_web": Registered(
        "turnwise.environments.shop.web:ShopWeb",
        "the same shop as web pages: plain, or in Chromium",
    ),
    "sokoban": Registered(
        "turnwise.environments.games.sokoban:Sokoban",
        "push boxes onto targets: small boards made here, or Boxoban's files",
    ),
    "sql": Registered(
        "turnwise.environments.sql.environment:SqlEnvironment",
        "ask tables or change them in SQL: made ones, or AgentBench's dbbench",
    ),
    "textworld": Registered(
        "turnwise.environments.adapters.textworld:TextWorld",
        "text adventures of TextWorld, made from seeds or yours; needs the extra textworld",
    ),
    "verifiers": Registered(
        "turnwise.environments.adapters.verifiers:Verifiers",
        "tasks of one turn from a taskset of verifiers; needs the extra verifiers",
    ),
    "web_forms": Registered(
        "turnwise.environments.web_forms.environment:WebForms",
        "fill in forms and find the way on small web sites: plain, or in Chromium",
    ),
}


def environment_names() -> dict[str, str]:
    """The built-in environments with a line on each, in alphabetical order."""
    return {name: ENVIRONMENTS[name].description for name in sorted(ENVIRONMENTS)}


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
            apply_override(named[-1][1], word)
    return named


def make_environment(
    name: str,
    options: Mapping[str, Any],
    consequential: Mapping[str, Any] = {},
    sandbox: Mapping[str, Any] = {},
) -> Environment:
    """Build the environment that a recipe names, with the recipe's rules for its consequential
    tools, and the recipe's table `sandbox` as the constructor's argument of that name.

    `name` is a built-in name, `path/to/file.py:Class` or `package.module:Class`; `options` are
    arguments of its constructor. Raises ConfigError for what is not there or does not fit; an
    error inside the user's own file goes through.
    """
    registered = ENVIRONMENTS.get(name)
    kind = _find(registered.target if registered else name)
    if sandbox:
        if "sandbox" not in inspect.signature(kind).parameters or "sandbox" in options:
            raise ConfigError(
                f"environment {name} takes no table [sandbox]: remove it from the recipe"
            )
        options = {**options, "sandbox": sandbox}
    return guarded(kind(**_checked(name, kind, options)), consequential)


def _find(target: str) -> type[Environment]:
    place, separator, class_name = target.rpartition(":")
    if not separator:
        raise unknown_name("environment", target, ENVIRONMENTS)
    module = load_module(place, "environment")
    found = getattr(module, class_name, None)
    if found is None:
        classes = [key for key, value in vars(module).items() if _is_environment(value)]
        raise ConfigError(f"{place}: {unknown_name('class', class_name, classes)}")
    if not _is_environment(found):
        raise ConfigError(f"{target}: not an environment: derive the class from Environment")
    kind: type[Environment] = found
    return kind


def _is_environment(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Environment) and value is not Environment


def _checked(name: str, kind: type[Environment], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, converted to the types that the constructor states."""
    parameters = inspect.signature(kind, eval_str=True).parameters
    named = {key: entry for key, entry in parameters.items() if entry.kind not in _VARIABLE}
    if len(named) == len(parameters):
        for option in options:
            if option not in named:
                raise ConfigError(f"environment {name}: {unknown_name('option', option, named)}")
    for option, parameter in named.items():
        if parameter.default is inspect.Parameter.empty and option not in options:
            raise ConfigError(f"environment {name}: set environment.options.{option}")
    return {
        option: _converted(name, option, value, named[option].annotation)
        if option in named
        else value
        for option, value in options.items()
    }


_OPTION = re.compile(r"[\w.-]+=")
_VARIABLE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _converted(name: str, option: str, value: Any, annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return value
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise wrong_value(f"environment {name}: option {option!r}", error.errors()[0]) from None
