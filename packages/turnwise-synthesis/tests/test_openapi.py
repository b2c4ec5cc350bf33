"""The method `openapi`, and the environment that plays its items, against a small server."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from environment_contract import keeps_its_word
from turnwise.api import load_recipe
from turnwise.errors import ConfigError, DataError, InfrastructureError
from turnwise.types import Action, Task, ToolCall
from turnwise_environments.adapters.openapi import (
    Api,
    ApiQuestions,
    OpenApiEnvironment,
    Parameter,
)
from turnwise_environments.choosing import all_tasks
from turnwise_environments.measurement import NOTHING, played_all, success
from turnwise_synthesis.items import Item, Material, Refused
from turnwise_synthesis.openapi import OpenApi, values_of
from turnwise_synthesis.settings import SynthesisConfig

CITIES = ("Oslo", "Lima", "Bern", "Graz", "Kyiv", "Pune", "Cork")
OWNERS = [{"id": n, "name": f"Owner {chr(65 + n)}", "city": CITIES[n % 7]} for n in range(20)]
PETS = [
    {
        "id": 100 + n,
        "name": f"Pet/{n}",
        "kind": ["cat", "dog", "ant"][n % 3],
        "owner_id": n * 3 % 20,
    }
    for n in range(40)
]
WEIGHTS = [{"pet": n, "grams": 900 + 37 * n, "vet": f"Dr {n % 9}"} for n in range(100, 140)]
KIND = {"name": "kind", "in": "query", "schema": {"type": "string", "enum": ["cat", "dog", "ant"]}}
LATE = {"name": "late", "in": "query", "schema": {"type": "boolean"}}
ID = {"name": "petId", "in": "path", "schema": {"type": "integer"}}
DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {
        "/pets": {
            "get": {
                "operationId": "listPets",
                "parameters": [{"$ref": "#/components/parameters/k"}],
            },
            "post": {"operationId": "addPet"},
        },
        "/pets/{petId}": {
            "parameters": [ID],
            "get": {"operationId": "getPet", "summary": "One pet, with its weight."},
        },
        "/owners": {"get": {"description": "All owners."}},
        "/owner": {
            "get": {
                "operationId": "findOwner",
                "parameters": [
                    {
                        "name": "owner-id",
                        "in": "query",
                        "required": True,
                        "schema": {"type": "integer"},
                    }
                ],
            }
        },
        "/broken": {"get": {"operationId": "broken", "parameters": [LATE]}},
    },
    "components": {"parameters": {"k": KIND}},
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: value[0] for name, value in parse_qs(parts.query).items()}
        status, found = answer(unquote(parts.path), query)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_: Any) -> None:
        pass


def answer(path: str, query: dict[str, str]) -> tuple[int, Any]:
    if path == "/pets":
        return 200, {
            "total": 3,
            "pets": [one for one in PETS if query.get("kind") in (None, one["kind"])],
        }
    if path == "/owners":
        return 200, OWNERS
    if path.startswith("/pets/"):
        found = [{**pet, **weight} for pet, weight in zip(PETS, WEIGHTS, strict=True)]
        return next(
            ((200, one) for one in found if str(one["id"]) == path[6:]), (404, "no such pet")
        )
    if path == "/owner":
        found = [one for one in OWNERS if str(one["id"]) == query.get("owner-id")]
        return (200, found[0]) if found else (404, "no such owner")
    return (503, "later") if "late" in query else (500, "oh")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with closing(server.socket):
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def description(tmp_path: Path) -> str:
    path = tmp_path / "pets.json"
    path.write_text(json.dumps(DESCRIPTION))
    return str(path)


def made(description: str, url: str) -> OpenApi:
    settings = SynthesisConfig(method="openapi")
    return OpenApi(Material(load_recipe("demo"), settings), description, url)


def items_of(method: OpenApi, attempts: int) -> tuple[list[Item], Counter[str]]:
    items, refused = [], Counter[str]()
    for attempt in range(attempts):
        try:
            items.append(method.propose(attempt))
        except Refused as error:
            refused[str(error)] += 1
    return items, refused


def environment_of(
    folder: Path, description: str, url: str, items: list[Item]
) -> OpenApiEnvironment:
    file = folder / "items.jsonl"
    file.write_text("".join(json.dumps(dict(item.data)) + "\n" for item in items))
    return OpenApiEnvironment(description, url, ApiQuestions(file=str(file)))


def test_values_are_those_that_a_call_can_have() -> None:
    told = {"enum": [[1], 3, "a", True], "default": None, "example": date(2024, 1, 2)}
    assert values_of(Parameter("n", "n", "query", True, told)) == [3, "a", True, "2024-01-02"]


@pytest.mark.long
def test_items_are_solved_by_their_calls_alone(tmp_path: Path, description: str, url: str) -> None:
    method = made(description, url)
    items, refused = items_of(method, 300)
    kinds = Counter(item.data["kind"] for item in items)
    assert {"count", "1 calls", "2 calls", "3 calls"} <= set(kinds)
    assert {"guessable", "shortcut", "shown", "refused by the API"} <= set(refused)
    assert items_of(method, 300) == (items, refused)
    environment = environment_of(tmp_path, description, url, items)
    tasks = all_tasks(environment)
    played = played_all(environment, tasks, [environment.oracle(task) for task in tasks])
    assert success(played) == 1
    assert success(played_all(environment, tasks, [[NOTHING]] * len(tasks))) == 0
    sound = {path: one for path, one in DESCRIPTION["paths"].items() if path != "/broken"}
    Path(description).write_text(json.dumps({**DESCRIPTION, "paths": sound}))
    whole = environment_of(tmp_path, description, url, items)
    keeps_its_word(whole, most=20, compared=8, hidden=("answer",))


def test_tools_are_what_reads_and_check_their_arguments(
    tmp_path: Path, description: str, url: str
) -> None:
    item = Item("", {"question": "Who?", "answer": "Pet/3"})
    environment = environment_of(tmp_path, description, url, [item])
    schemas = {tool.name: tool.schema["parameters"]["properties"] for tool in environment.tools()}
    assert sorted(schemas) == ["broken", "findOwner", "getPet", "get_owners", "listPets"]
    assert schemas["findOwner"] == {"owner_id": {"title": "Owner Id", "type": "integer"}}
    said = [
        result(environment, "findOwner", owner_id=4),
        result(environment, "getPet", petId=7),
        result(environment, "getPet", petId="../owners"),
        result(environment, "listPets", kind="cow"),
        result(environment, "broken"),
    ]
    assert json.loads(said[0])["name"] == "Owner E"
    assert said[1] == 'Error: status 404: "no such pet"'
    assert said[2].startswith("Error: getPet: argument 'petId'")
    assert said[3].startswith("Error: listPets: argument 'kind'")
    assert said[4] == 'Error: status 500: "oh"'
    with pytest.raises(InfrastructureError, match="broken: status 503"):
        result(environment, "broken", late=True)


def result(environment: OpenApiEnvironment, name: str, **arguments: Any) -> str:
    async def acted() -> str:
        await environment.reset(Task("one", "Who?"), 0)
        step = await environment.step(Action("", calls=(ToolCall(name, arguments),)))
        return step.results[0].content

    return asyncio.run(acted())


BROKEN = {
    "no description": ("{}", "no OpenAPI description"),
    "no JSON": ("{", "no OpenAPI description"),
    "no YAML": ("[", "no OpenAPI description"),
    "a day that is none": ("a: 2024-13-45", "no OpenAPI description"),
    "nothing to read": ('{"openapi": "3.0.0", "paths": {}}', "none of its operations is a GET"),
    "a circle": (
        json.dumps(
            {
                "openapi": "3.0.0",
                "paths": {"/a": {"$ref": "#/components/a"}},
                "components": {"a": {"$ref": "#/components/a"}},
            }
        ),
        "refers to itself",
    ),
    "nowhere": ('{"openapi": "3.0.0", "paths": {"/a": {"$ref": "b.json"}}}', "refers to nothing"),
    "an empty path": ('{"openapi": "3.0.0", "paths": {"/a": null}}', "/a is not as OpenAPI has it"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_description_is_told(tmp_path: Path, name: str) -> None:
    text, reason = BROKEN[name]
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(DataError, match=f"broken.json.*{reason}"):
        Api(str(path), "http://localhost:1")


def test_parameters_whose_names_and_types_python_lacks(tmp_path: Path) -> None:
    query = {"name": "id", "in": "query", "schema": {"type": ["integer", "null"]}}
    optional = {"anyOf": [{"type": "number"}, {"type": "null"}]}
    parameters = [
        {"name": "id", "in": "path", "schema": {"type": "integer"}},
        query,
        {"name": "from", "in": "query"},
        {"name": "$top", "in": "query", "schema": optional},
    ]
    paths = {
        "/a/{id}": {"get": {"operationId": "a b", "parameters": parameters}},
        "/b": {"get": {"operationId": "a-b"}},
    }
    path = tmp_path / "odd.json"
    described = {"openapi": "3.1.0", "paths": paths}
    path.write_text(json.dumps(described, indent="\t"))  # which YAML does not take
    first, second = Api(str(path), "http://localhost:1").tools()
    assert (first.name, second.name) == ("a_b", "a_b_")
    assert set(first.schema["parameters"]["properties"]) == {"id", "id_", "from_", "top"}
    assert first.check({"id": 1, "id_": 2, "from_": "x", "top": 0.5})["top"] == 0.5


@pytest.mark.parametrize("calls", ["pets", [{"name": "pets"}], None])
def test_broken_calls_of_a_question_are_told(tmp_path: Path, description: str, calls: Any) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"question": "a?", "answer": "b", "calls": calls}))
    with pytest.raises(DataError, match="'calls' is a list"):
        OpenApiEnvironment(description, "http://localhost:1", ApiQuestions(file=str(path)))


def test_what_cannot_be_asked_is_told(tmp_path: Path, description: str) -> None:
    for url in ("localhost:1", "http://localhost:one", "http://[", "http://a/?b"):
        with pytest.raises(ConfigError, match="no server"):
            Api(description, url)
    path = tmp_path / "one.yaml"
    path.write_text("openapi: 3.0.0\npaths: {'/a/{b}': {get: {parameters: [{name: b, in: path}]}}}")
    with pytest.raises(DataError, match="give the parameters an example"):
        made(str(path), "http://localhost:1")
