"""A user's own tools over a user's own data: a Python module, and tables as JSON.

A tool is a public function of the module whose first parameter is `data`, the tables, which it may
change; the others are typed and are what the agent gives. Instead, the module may have a list
`ALL_TOOLS` of such functions, or of classes as tau-bench has them (`invoke`, `get_info`), or be
one of tau2-bench's, with a toolkit, a class over a database. The
difference of two states of the tables, small where these are large, is what tasks expect and what
snapshots hold.
"""

import copy
import functools
import inspect
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any, get_type_hints

from turnwise.environments.records import read_text
from turnwise.errors import ConfigError, DataError, InfrastructureError, ToolError
from turnwise.registry import load_module
from turnwise.tools.isolated import Workers
from turnwise.tools.tool import Tool

Data = dict[str, Any]
Changes = dict[str, Any]
"""Table -> {"rows": {key: [row], or [] where it is gone}}, or {"whole": [table], or []}."""


def read_tables(path: Path) -> Data:
    """The tables of a .json file (an object, a table by each key), or of a folder of .json files, a
    table each. Raises DataError for what is missing or broken."""
    if path.is_dir():
        files = sorted(path.glob("*.json"))
        if not files:
            raise DataError(f"{path}: there are no .json files in it")
        return {file.stem: _parsed(file) for file in files}
    if not path.is_file():
        raise DataError(f"{path}: there is no such file or folder")
    data = _parsed(path)
    if not isinstance(data, dict):
        raise DataError(f"{path}: expected one JSON object, a table by each key")
    return data


def differences(before: Data, after: Data) -> Changes:
    found: Changes = {}
    # In the order of the tables, not sorted: a restored episode has to list rows as it did before.
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if name in before and name in after and old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            found[name] = {"rows": _changed_rows(old, new)}
        else:
            found[name] = {"whole": [new] if name in after else []}
    plain: Changes = json.loads(json.dumps(found, default=str))
    return plain


def write(changes: Changes, data: Data) -> None:
    for name, change in copy.deepcopy(changes).items():
        if "whole" in change:
            _put(data, name, change["whole"])
        for key, row in change.get("rows", {}).items():
            _put(data[name], key, row)


def _changed_rows(old: Data, new: Data) -> dict[str, list[Any]]:
    return {
        str(key): [new[key]] if key in new else []
        for key in {**old, **new}
        if key not in old or key not in new or old[key] != new[key]
    }


def _put(table: Data, key: str, row: list[Any]) -> None:
    if row:
        table[key] = row[0]
    else:
        table.pop(key, None)


def _parsed(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: broken JSON: {error.msg}") from None
    except RecursionError:
        raise DataError(f"{path}: this JSON is nested too deeply: is it broken?") from None


@dataclass(frozen=True)
class OwnTools:
    """The tools of a module, not yet over any data. Example: `read_tools("library.py")`."""

    functions: Mapping[str, Callable[..., str]]
    """Functions by name; the first argument is an object whose `data` the tool is over."""
    described: Mapping[str, tuple[str, Mapping[str, Any]]]
    """Description and parameters, where the module states them beside the signature."""
    last: frozenset[str]
    """Tools that end the conversation: `TERMINATE_TOOLS` of the module."""
    workers: Workers | None = None
    """Processes that run the tools; None runs them here, where an endless one blocks all."""

    def over(self, holder: object) -> dict[str, Tool]:
        """The tools over `holder.data`, by name, in alphabetical order."""
        return {name: self._tool(name, holder) for name in sorted(self.functions)}

    def _tool(self, name: str, holder: object) -> Tool:
        made = Tool.of(MethodType(self.functions[name], holder))
        if self.workers is not None:
            made = replace(made, isolated=functools.partial(self._apart, name, holder))
        if name not in self.described:
            return made
        description, parameters = self.described[name]
        schema = {"name": name, "description": description, "parameters": parameters}
        return replace(made, description=description, schema=schema)

    def _apart(self, name: str, holder: Any, values: Mapping[str, Any], seconds: float) -> str:
        """Run a tool in a worker."""
        assert self.workers is not None  # only then is this called
        before = pickle.dumps(holder.data)
        try:
            text, after = self.workers.call(_worked, name, before, values, seconds=seconds)
        except ToolError as error:
            raise ToolError(f"{name}: {error}") from None
        if after is not None:
            # In place: the data of a desk is that of its play.
            holder.data.clear()
            holder.data.update(pickle.loads(after))
        if isinstance(text, Refused):
            raise ToolError(text)
        return str(text)


@dataclass
class Holder:
    """Holds the data of tools outside of an episode."""

    data: Data

    def call(self, tools: OwnTools, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool at once. Raises ToolError as for an agent."""
        found = tools.over(self)
        if name not in found:
            raise ToolError(f"there is no tool {name!r}; tools: {', '.join(found)}")
        try:
            return str(found[name].function(**found[name].check(arguments)))
        except SystemExit as error:
            raise ToolError(f"{name}: it ended itself with SystemExit({error})") from None


class Refused(str):
    """A tool's words to the agent on its mistake: its changes up to there stay."""


_prepared: list[OwnTools] = []
"""The tools that a worker has read; empty in every other process."""


def _prepare(place: str) -> None:
    _prepared.append(read_tools(place, isolated=False))


def _worked(name: str, before: bytes, values: Mapping[str, Any]) -> tuple[str, bytes | None]:
    """Run a tool in a worker; gives what it says, and the data after it where it changed them."""
    holder = Holder(pickle.loads(before))
    try:
        text = str(_prepared[0].over(holder)[name].function(**values))
    except ToolError as error:
        text = Refused(error)
    after = pickle.dumps(holder.data)
    return text, None if after == before else after


@functools.cache
def _workers(place: str, module: str) -> Workers:
    del module
    return Workers(_prepare, place)


def read_tools(place: str, isolated: bool = True) -> OwnTools:
    """The tools of `path/to/file.py` or `package.module`. Raises ConfigError for a module that is
    not there or has none, and for a function that cannot be a tool."""
    module = load_module(place, "desk: tools")
    functions: dict[str, Callable[..., str]] = {}
    described: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for entry in getattr(module, "ALL_TOOLS", None) or _of_toolkits(module, described):
        function, name = entry, getattr(entry, "__name__", "")
        if isinstance(entry, type):
            function, name = _of_class(entry, place, described)
        functions[name] = _acting(function, name, place)
    if not functions:
        raise ConfigError(
            f"{place}: no tools: write public functions whose first parameter is data"
        )
    last = frozenset(getattr(module, "TERMINATE_TOOLS", ()))
    for name in sorted(last - functions.keys()):
        raise ConfigError(f"{place}: TERMINATE_TOOLS names {name!r}, which is no tool here")
    workers = _workers(place, module.__name__) if isolated else None
    return OwnTools(functions, described, last, workers)


def _of_toolkits(
    module: ModuleType, described: dict[str, tuple[str, Mapping[str, Any]]]
) -> list[Callable[..., Any]]:
    """The methods of tau2-bench's toolkits as functions; without one, the public functions."""
    kinds: list[Any] = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and hasattr(value, "use_tool")
    ]
    found = []
    for kind in kinds:
        for name, made in kind(None).get_tools().items():
            info = made.openai_schema["function"]
            described[name] = (str(info["description"]), info["parameters"])
            found.append(_over_database(kind, name))
    return found or _public_functions(module)


def _over_database(kind: Any, name: str) -> Callable[..., Any]:
    """A method of a toolkit, over the database that its class names, of the tables `data`."""
    database, method = get_type_hints(kind)["db"], getattr(kind, name)

    @functools.wraps(method)
    def act(data: Data, **arguments: Any) -> Any:
        held = database.model_validate(data)
        if not getattr(method, "__mutates_state__", True):
            return method(kind(held), **arguments)
        before = held.model_dump(mode="json")
        result = method(kind(held), **arguments)
        write(differences(before, held.model_dump(mode="json")), data)
        return result

    return act


def _public_functions(module: ModuleType) -> list[Callable[..., Any]]:
    found = [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and name[:1] != "_"
    ]
    return [
        value for value in found if next(iter(inspect.signature(value).parameters), "") == "data"
    ]


def _of_class(
    kind: type, place: str, described: dict[str, tuple[str, Mapping[str, Any]]]
) -> tuple[Callable[..., Any], str]:
    try:
        info = kind.get_info()["function"]  # type: ignore[attr-defined]
        name = str(info["name"])
        described[name] = (str(info["description"]), info["parameters"])
        return kind.invoke, name  # type: ignore[attr-defined]
    except (AttributeError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{place}: tool class {kind.__name__} has no invoke and get_info: {error}"
        ) from None


def _acting(function: Callable[..., Any], name: str, place: str) -> Callable[..., str]:
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{place}: tool {name} is async: write a plain function")
    try:
        first, *others = inspect.signature(function, eval_str=True).parameters.values()
    except (NameError, TypeError, ValueError) as error:  # no type, no function, no parameter
        raise ConfigError(
            f"{place}: tool {name or repr(function)} is no function of data and typed parameters: "
            f"{error}"
        ) from None
    for parameter in others:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"{place}: tool {name}: name every parameter, in place of * and **")

    @functools.wraps(function)
    def act(self: Any, **arguments: Any) -> str:
        try:
            result = function(self.data, **arguments)
            return result if isinstance(result, str) else json.dumps(result, default=_written)
        except (ToolError, InfrastructureError, ConnectionError, TimeoutError):
            raise
        except Exception as error:  # as in tau-bench: a wrong id is often a KeyError
            raise ToolError(f"{name}: {type(error).__name__}: {error}") from error

    act.__name__ = name
    try:
        act.__signature__ = inspect.Signature([first.replace(name="self"), *others])  # type: ignore[attr-defined]
        Tool.of(act)
    except ValueError as two:  # a second self
        raise ConfigError(f"{place}: tool {name}: its parameters cannot be given: {two}") from None
    return act


def _written(value: Any) -> Any:
    """The fields of a model, else the text: a form of JSON's."""
    return value.model_dump() if hasattr(value, "model_dump") else str(value)
