"""The reading operations of an HTTP API as tools, after its OpenAPI description (3.0 or 3.1).

    environment.name="openapi"
    environment.options={ description = "shop.yaml", url = "http://localhost:8000", tasks = { file
        = "questions.jsonl" } }

Each GET operation is a tool; what changes something on the server is none, so that all episodes can
share one server. A line of the file of questions is an object: `question`, `answer`, `calls` (name
and arguments of the calls that lead to it) and, if known, its `kind`; `turnwise synthesise` writes
such files. Not here: parameters of headers and cookies, credentials.
"""

import inspect
import json
import re
from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode, urlsplit

import yaml

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import TaskFile, TaskSet
from turnwise.environments.turn_parts import share
from turnwise.errors import ConfigError, DataError, InfrastructureError, ToolError
from turnwise.tools.tool import Tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.common import check_texts, identity
from turnwise_environments.rewards.cells import cells_match
from turnwise_environments.tools.http import Fetcher, is_address, text_of

TYPES: Mapping[Any, type] = {"string": str, "integer": int, "number": float, "boolean": bool}
UNAVAILABLE = (502, 503, 504)
"""Statuses of a server that is not there. A 500 may be what an agent's arguments have made of it:
as a lost episode it would be a way out of a failure."""
MOST_REFERENCES = 50
"""References that follow one another, at most: beyond them they are a circle."""


@dataclass(frozen=True)
class Parameter:
    """Example: Parameter("pet-id", "pet_id", "path", True, {"type": "integer"})."""

    name: str
    argument: str
    """The name as an argument of the tool has it."""
    place: Literal["path", "query"]
    required: bool
    schema: Mapping[str, Any]

    @property
    def annotation(self) -> Any:
        """The argument's type."""
        values = tuple(self.schema.get("enum") or ())
        if values and all(isinstance(value, str) for value in values):
            return Literal[values]
        # 3.1 has lists of types, and any of several schemas, for what may be null.
        given = [one.get("type") for one in (self.schema, *(self.schema.get("anyOf") or ()))]
        names = {name for one in given for name in (one if isinstance(one, list) else [one])}
        kinds = {TYPES.get(name, str) for name in names - {None, "null"}}
        kind: Any = kinds.pop() if len(kinds) == 1 else str
        return kind if self.required else kind | None

    @property
    def values(self) -> list[Any]:
        """Values that the description names."""
        found = [*(self.schema.get("enum") or ())]
        found += [self.schema[key] for key in ("example", "default") if key in self.schema]
        return found + list(self.schema.get("examples") or ())


@dataclass(frozen=True)
class Operation:
    """An operation that reads."""

    name: str
    path: str
    words: str
    parameters: tuple[Parameter, ...]

    @property
    def required(self) -> list[Parameter]:
        return [one for one in self.parameters if one.required]


class Api:
    """The operations of a description, at a server."""

    def __init__(self, description: str, url: str) -> None:
        """`description` is a file of JSON or YAML, `url` the server's address without an
        operation's path. Raises ConfigError for an address that is none, DataError for a file that
        is no OpenAPI description, or has nothing to read."""
        if not is_address(url) or urlsplit(url).query:
            raise ConfigError(f"openapi: {url!r} is no server: write http://host:port")
        self.url = url.rstrip("/")
        self._fetcher = Fetcher([urlsplit(url).netloc], allow_private=True)
        self.operations = {one.name: one for one in _operations(Path(description).expanduser())}
        if not self.operations:
            raise DataError(f"{description}: none of its operations is a GET")

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The body of an operation's answer. Raises ToolError where the server says that the call
        failed, InfrastructureError where it cannot be reached or is not there for a while."""
        operation = self.operations[name]
        path, query = operation.path, []
        for one in operation.parameters:
            value = arguments.get(one.argument)
            if one.place == "path":
                path = path.replace(f"{{{one.name}}}", quote(_plain(value), safe=""))
            elif value is not None:
                query.append((one.name, _plain(value)))
        page = self._fetcher.page(f"{self.url}{path}{'?' * bool(query)}{urlencode(query)}")
        text = text_of(page)
        if page.status in UNAVAILABLE:
            raise InfrastructureError(f"{self.url}: {name}: status {page.status}: {text[:200]}")
        if page.status >= 400:
            raise ToolError(f"status {page.status}: {text[:500]}")
        if page.cut:
            raise ToolError("the answer is too long")
        return text

    def tools(self) -> list[Tool]:
        return [self._tool(self.operations[name]) for name in sorted(self.operations)]

    def _tool(self, operation: Operation) -> Tool:
        def run(**arguments: Any) -> str:
            return self.call(operation.name, arguments)

        # A tool's schema and checks are its function's signature.
        run.__name__, run.__doc__ = operation.name, operation.words
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    one.argument,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if one.required else None,
                    annotation=one.annotation,
                )
                for one in operation.parameters
            ]
        )
        return Tool.of(run)


@dataclass(frozen=True, kw_only=True)
class ApiQuestions(TaskFile):
    """The tasks of a file of questions about what an API tells."""


class OpenApiEnvironment(Environment):
    """Questions that are answered by calling an API. Example:
    `OpenApiEnvironment("shop.json", "http://localhost:8000", ApiQuestions(file="shop.jsonl"))`."""

    facts = EnvironmentSpec("openapi", "1", parts={"correct": share("whether the answer is right")})
    stateless = True
    weaknesses = ("an answer that the server has come to give otherwise counts as wrong",)

    def __init__(self, description: str, url: str, tasks: ApiQuestions) -> None:
        """Raises ConfigError and DataError as `Api` does, and DataError for a broken question."""
        self.api = Api(description, url)
        self._tools = self.api.tools()
        self.task_set = TaskSet.read(tasks, self._read, "questions")

    def tools(self) -> list[Tool]:
        return self._tools

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 for the right answer: numbers are compared as numbers."""
        success = cells_match(trajectory.answer, [trajectory.task.secret["answer"]])
        said = f"answered {trajectory.answer!r:.80}"
        return Verdict(float(success), success, {"correct": float(success)}, said)

    def oracle(self, task: Task) -> Sequence[Action]:
        """The calls, one a turn, and the answer."""
        calls = [ToolCall(one["name"], one["arguments"]) for one in task.secret["calls"]]
        acted = [Action("", "ask", (call,)) for call in calls]
        return [*acted, Action("", "done", answer=task.secret["answer"])]

    def _read(self, record: Mapping[str, Any], where: str) -> Task:
        check_texts(record, ("question", "answer"), where)
        try:
            given = record.get("calls", ())
            calls = [{"name": one["name"], "arguments": dict(one["arguments"])} for one in given]
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{where}: 'calls' is a list of objects, name and arguments") from None
        for call in calls:
            if call["name"] not in self.api.operations:
                raise DataError(f"{where}: the API has no operation {call['name']!r}")
        secret = {"answer": record["answer"], "calls": calls}
        info = {"kind": str(record.get("kind", "question"))}
        return Task(identity(record["question"]), record["question"], secret, info=info)


def _operations(path: Path) -> list[Operation]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        # As YAML, which JSON nearly is, some megabytes take minutes, and tabs are refused.
        root = json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise DataError(f"{path}: no OpenAPI description: {' '.join(str(error).split())}") from None
    if not isinstance(root, Mapping) or not str(root.get("openapi", "")).startswith("3."):
        raise DataError(f"{path}: no OpenAPI description of version 3: it says no 'openapi: 3.…'")
    found: list[Operation] = []
    route = "paths"
    try:
        for route, shared in (root.get("paths") or {}).items():
            shared = _resolved(root, shared, path)
            if "get" in shared:
                names = {one.name for one in found}
                found.append(_operation(root, route, shared, path, names))
    except (AttributeError, LookupError, TypeError) as error:
        raise DataError(f"{path}: {route} is not as OpenAPI has it: {error!r}") from None
    return found


def _operation(
    root: Mapping[str, Any], route: str, shared: Any, path: Path, taken: Set[str]
) -> Operation:
    own = shared["get"]
    listed = [*shared.get("parameters", ()), *own.get("parameters", ())]
    resolved = [_resolved(root, one, path) for one in listed]
    # An operation's own parameter stands for the path's of the same name.
    named = {(one["name"], one["in"]): one for one in resolved}
    parameters: dict[str, Parameter] = {}
    for (name, place), one in named.items():
        if place in ("path", "query"):
            argument = _name(name, parameters)
            required = one.get("required", False) or place == "path"
            schema = {**_resolved(root, one.get("schema", {}), path), **_examples(one)}
            parameters[argument] = Parameter(name, argument, place, required, schema)
    plain = re.sub(r"\W+", "_", f"get{route}").strip("_")
    words = " ".join(str(own.get("summary") or own.get("description") or plain).split())
    name = _name(str(own.get("operationId", plain)), taken)
    return Operation(name, route, words, tuple(parameters.values()))


def _name(text: str, taken: Container[str]) -> str:
    """A name that an argument can have in Python, and that is not taken: `from_` for from."""
    name = re.sub(r"\W+", "_", text).lstrip("_")  # with a _ before it a tool would leave it out
    name = name if name.isidentifier() else f"x{name}"
    while iskeyword(name) or name in taken:
        name += "_"
    return name


def _examples(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Example values that stand beside a parameter's schema."""
    several = [one["value"] for one in parameter.get("examples", {}).values() if "value" in one]
    given = {"example": parameter["example"]} if "example" in parameter else {}
    return given | ({"examples": several} if several else {})


def _resolved(root: Mapping[str, Any], part: Any, path: Path) -> Any:
    """A part of the description, or the part that it refers to."""
    for _ in range(MOST_REFERENCES):
        if not isinstance(part, Mapping) or "$ref" not in part:
            return part
        target, place = root, str(part["$ref"])
        for key in place.removeprefix("#/").split("/"):
            key = key.replace("~1", "/").replace("~0", "~")
            if not place.startswith("#/") or not isinstance(target, Mapping) or key not in target:
                raise DataError(f"{path}: {place!r} refers to nothing in this file")
            target = target[key]
        part = target
    raise DataError(f"{path}: {part['$ref']!r} refers to itself")


def _plain(value: Any) -> str:
    """An argument as an address has it."""
    return json.dumps(value) if isinstance(value, bool) else str(value)
