"""The method `openapi`: an API's description goes in, questions with calls and answers come out.

    [synthesis]
    method = "openapi"
    options = { description = "shop.yaml", url = "http://localhost:8000" }

A question begins with an operation that lists records, singles one out by a value, and asks for
another value of it or of what further operations give for it. The environment `openapi` plays the
items.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

from turnwise.errors import DataError, InfrastructureError, ToolError
from turnwise.rewards.answer import normalise
from turnwise.seeds import derive
from turnwise_environments.adapters.openapi import Api, Operation, Parameter
from turnwise_synthesis.items import Item, Material, Refused
from turnwise_synthesis.tables.questions import FEWEST, MOST_SHARE, is_plain
from turnwise_synthesis.tables.schema import in_words

COUNTS = 0.25
"""The share of questions that ask how many there are."""
MOST_HOPS = 2
"""Operations after the first one, at most."""
LONGEST = 20_000
"""Characters of an answer of the API that an agent can be asked to read."""
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Way:
    """The calls so far, their words, and the records to which they have led."""

    calls: tuple[Mapping[str, Any], ...]
    words: str
    passed: tuple[Record, ...]
    """The records before the present one."""
    record: Record
    among: Sequence[Record]
    """The records of the same kind that are known, from which a guess would be made."""


class OpenApi:
    """Example: OpenApi(material, "shop.json", "http://localhost:8000").propose(0)."""

    def __init__(self, material: Material, description: str, url: str) -> None:
        """Raises ConfigError and DataError as `Api` does, and DataError where no operation can be
        called with what the description tells."""
        self._seed, self._api = material.seed, Api(description, url)
        self._first = [
            one for one in self._api.operations.values() if all(map(values_of, one.required))
        ]
        if not self._first:
            raise DataError(
                f"{description}: each GET wants an argument for which no value is told: give the "
                "parameters an example or an enum"
            )
        self._found = cache(self._asked)

    def propose(self, attempt: int) -> Item:
        stream = random.Random(derive(self._seed, attempt))
        call, source, records = self._begun(stream)
        if stream.random() < COUNTS:
            question, answer = _counted(stream, source, records)
            return _item("count", (call,), question, answer)
        record, single = _single(stream, records)
        words = f"Take the record that {source} gives whose {single}."
        way = Way((call,), words, (), record, records)
        for _ in range(stream.randint(0, MOST_HOPS)):
            way = self._hop(stream, way)
        question, answer = _lookup(stream, way)
        return _item(f"{len(way.calls)} calls", way.calls, question, answer)

    def _begun(self, stream: random.Random) -> tuple[Record, str, list[Record]]:
        """A call that lists records, its words, and the records."""
        operation = stream.choice(self._first)
        arguments = {
            one.argument: stream.choice(values)
            for one in operation.parameters
            if (values := values_of(one)) and (one.required or stream.random() < 0.5)
        }
        records = _records(self._found(operation.name, tuple(arguments.items())))
        told = [f"{in_words(name)} {_told(value)}" for name, value in arguments.items()]
        source = " with ".join([operation.name, *([", ".join(told)] if told else [])])
        return {"name": operation.name, "arguments": arguments}, source, records

    def _hop(self, stream: random.Random, way: Way) -> Way:
        """The record to which a value of the present one leads; the way as it is without one."""
        links = list(self._links(way))
        if not links:
            return way
        operation, parameter, field = stream.choice(links)
        arguments = {parameter.argument: way.record[field]}
        found = self._found(operation.name, tuple(arguments.items()))
        calls = (*way.calls, {"name": operation.name, "arguments": arguments})
        passed = (*way.passed, way.record)
        by = f"{operation.name} gives for its {in_words(field)}"
        if isinstance(found, Mapping) and not _lists(found):
            words = f"{way.words} Go on with the record that {by}."
            return Way(calls, words, passed, found, ())
        record, single = _single(stream, _records(found))
        words = f"{way.words} Of the records that {by}, go on with the one whose {single}."
        return Way(calls, words, passed, record, _records(found))

    def _links(self, way: Way) -> Iterator[tuple[Operation, Parameter, str]]:
        """Operations not called yet that want one argument, which a field of the record gives."""
        called = [self._api.operations[call["name"]] for call in way.calls]
        for operation in self._api.operations.values():
            if operation in called or len(operation.required) != 1:
                continue
            (parameter,) = operation.required
            below = operation.path.startswith(f"{called[-1].path.rstrip('/')}/{{")
            for field, value in way.record.items():
                if is_plain(value) and _leads(field, parameter, below):
                    yield operation, parameter, field

    def _asked(self, name: str, arguments: tuple[tuple[str, Any], ...]) -> Any:
        """The API's answer, read as JSON."""
        try:
            text = self._api.call(name, dict(arguments))
            if len(text) > LONGEST:
                raise Refused("too long")
            return json.loads(text)
        except ToolError:
            raise Refused("refused by the API") from None
        except InfrastructureError:
            raise Refused("the API failed") from None
        except ValueError:
            raise Refused("no JSON") from None


def values_of(parameter: Parameter) -> list[Any]:
    """The values that the description tells, as a call can have them: a date, which YAML reads as
    one, is a text, and no list is a value."""
    return [
        str(one) if isinstance(one, date) else one
        for one in parameter.values
        if isinstance(one, bool | int | float | str | date)
    ]


def _leads(field: str, parameter: Parameter, below: bool) -> bool:
    """Whether a field is what a parameter wants: by its whole name, such as `owner_id`; or by the
    last word of it where the operation lies `below` the one that gave the record, `/pets/{petId}`
    below `/pets`."""
    own, wanted = in_words(field).split(), in_words(parameter.argument).split()
    if len(own) == 1:
        return below and own == wanted[-1:]
    return own == wanted


def _lists(found: Any) -> list[Any]:
    """The lists of an answer: itself, or those in it, as of a page."""
    if isinstance(found, Mapping):
        return [value for value in found.values() if isinstance(value, list)]
    return [found] if isinstance(found, list) else []


def _records(found: Any) -> list[Record]:
    """The records of an answer's only list."""
    lists = _lists(found)
    records = lists[0] if len(lists) == 1 else []
    if len(records) < FEWEST or not all(isinstance(one, Mapping) for one in records):
        raise Refused("no list of records")
    return list(records)


def _single(stream: random.Random, records: Sequence[Record]) -> tuple[Record, str]:
    """A record, and in words the value that it alone has."""
    record = stream.choice(records)
    names = [
        name
        for name, value in record.items()
        if is_plain(value) and sum(one.get(name) == value for one in records) == 1
    ]
    if not names:
        raise Refused("not unique")
    name = stream.choice(names)
    return record, f"{in_words(name)} is {_told(record[name])}"


def _counted(stream: random.Random, source: str, records: Sequence[Record]) -> tuple[str, str]:
    """How many records have a value that several have."""
    values = [pair for one in records for pair in one.items() if is_plain(pair[1])]
    often = [pair for pair, times in Counter(values).items() if FEWEST <= times < len(records)]
    if not often:
        raise Refused("nothing to count")
    name, value = stream.choice(often)
    question = (
        f"How many of the records that {source} gives have {_told(value)} as their "
        f"{in_words(name)}?"
    )
    return question, str(sum(one.get(name) == value for one in records))


def _lookup(stream: random.Random, way: Way) -> tuple[str, str]:
    """A field of the record that is neither told nor likely to be guessed."""
    fields = [name for name, value in way.record.items() if is_plain(value)]
    if not fields:
        raise Refused("no value")
    field = stream.choice(fields)
    value = way.record[field]
    if any(one.get(field) == value for one in way.passed):
        raise Refused("shortcut")
    same = sum(one.get(field) == value for one in way.among)
    if isinstance(value, bool) or same > max(1, MOST_SHARE * len(way.among)):
        raise Refused("guessable")
    return f"{way.words} What is its {in_words(field)}?", str(value)


def _item(kind: str, calls: Sequence[Record], question: str, answer: str) -> Item:
    if f" {normalise(answer)} " in f" {normalise(question)} ":
        raise Refused("shown")
    data = {"question": question, "answer": answer, "calls": list(calls), "kind": kind}
    return Item(question, data)


def _told(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
