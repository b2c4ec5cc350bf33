"""A request's JSON, read field by field: what is left over at the end is refused by its name."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from turnwise.strict_json import DECODER
from turnwise.types import encodable
from turnwise_gateway.bounds import MOST_MESSAGES, MOST_TOOLS, check_depth
from turnwise_gateway.requests import RefusedError

PNG = b"\x89PNG\r\n\x1a\n"
PNG_URL = "data:image/png;base64,"
MOST = {"tools": MOST_TOOLS, "messages": MOST_MESSAGES}
MOST_PIXELS = 1 << 25
"""More than any model reads of an image."""


class Fields:
    """A JSON object of a request. A field that is null counts as absent.

    >>> Fields({"model": "policy", "n": None}).text("model")
    'policy'
    """

    def __init__(self, value: Any, where: str = "", ignored: dict[str, None] | None = None) -> None:
        """`where` is its place in the body, `ignored` collects names for all objects of a body."""
        if not isinstance(value, Mapping):
            raise RefusedError(f"{where or 'the body'}: must be an object", field=where)
        self._left = {encodable(name): one for name, one in value.items() if one is not None}
        self._where = where
        self._ignored = {} if ignored is None else ignored
        self._children: list[Fields] = []

    def __contains__(self, name: str) -> bool:
        """Whether it is there and not yet read."""
        return name in self._left

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of fields without bearing, each once."""
        return tuple(self._ignored)

    def refused(self, name: str, reason: str) -> RefusedError:
        place = self._place(name)
        return RefusedError(f"{place}: {reason}", field=place)

    def text(self, name: str, default: str | None = None) -> str:
        """A string. Without a default it has to be there."""
        value = self._left.pop(name, default)
        if value is None:
            raise self.refused(name, "is missing")
        if not isinstance(value, str):
            raise self.refused(name, "must be a string")
        return encodable(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Strings, of which there may be none, or one that stands without a list."""
        value = self._left.pop(name, [])
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.refused(name, "must be a list of strings")
        return tuple(encodable(one) for one in value)

    def number(self, name: str, most: int | None = None) -> int | None:
        """A whole number from 1 on, if it is there."""
        value = self._left.pop(name, None)
        if value is None:
            return None
        if type(value) is not int or value < 1:  # True is an int too
            raise self.refused(name, "must be a whole number from 1 on")
        if most is not None and value > most:
            raise self.refused(name, f"may be at most {most}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._left.pop(name, default)
        if not isinstance(value, bool):
            raise self.refused(name, "must be true or false")
        return value

    def kind(self, name: str, *known: str, default: str | None = None) -> str:
        """A string that is one of a few; another one is refused with its own name."""
        value = self.text(name, default)
        if value not in known:
            offered = " and ".join(repr(one) for one in known)
            raise self.refused(name, f"{value!r} is not supported, only {offered}")
        return value

    def object(self, name: str) -> "Fields":
        """An object, which has to be there."""
        if name not in self._left:
            raise self.refused(name, "is missing")
        return self._child(self._left.pop(name), name)

    def objects(self, name: str) -> list["Fields"]:
        """Objects of a list, of which there may be none."""
        value = self._left.pop(name, [])
        if not isinstance(value, list):
            raise self.refused(name, "must be a list")
        if len(value) > MOST.get(name, len(value)):  # before each of them is read
            raise self.refused(name, f"{len(value)} are more than {MOST[name]}")
        return [self._child(one, f"{name}[{number}]") for number, one in enumerate(value)]

    def text_or_object(self, name: str, default: str) -> "str | Fields":
        value = self._left.get(name, default)
        return self.text(name, default) if isinstance(value, str) else self.object(name)

    def text_or_objects(self, name: str) -> str | list["Fields"]:
        """A string, or objects of a list, as contents of messages are."""
        value = self._left.get(name)
        return self.text(name) if value is None or isinstance(value, str) else self.objects(name)

    def schema(self, name: str) -> dict[str, Any]:
        """A JSON schema of an object; where it is absent or empty, of one without properties."""
        value = self._left.pop(name, None) or {"type": "object", "properties": {}}
        if not isinstance(value, dict):
            raise self.refused(name, "must be an object")
        if value.get("type") != "object":
            raise self.refused(f"{name}.type", "must be 'object'")
        return self._encodable(name, value)

    def arguments(self, name: str) -> dict[str, Any]:
        """A call's arguments: an object, or its JSON in a string, which may be empty for none."""
        value = self._left.pop(name, None)
        if isinstance(value, str):
            try:
                value = DECODER.decode(value or "{}")
            except (ValueError, RecursionError) as error:
                raise self.refused(name, f"is not the JSON of an object: {error}") from None
        if not isinstance(value, dict):
            raise self.refused(name, "must be an object")
        return self._encodable(name, value)

    def png(self, name: str, written: str | None = None) -> bytes:
        """A PNG image in base64, in the field or as `written` there."""
        try:
            image = base64.b64decode(self.text(name) if written is None else written, validate=True)
        except (binascii.Error, ValueError):
            raise self.refused(name, "is not base64") from None
        if not image.startswith(PNG):
            raise self.refused(name, "is not a PNG image")
        # Its header's width and height: half a megabyte may be an image of a gigabyte.
        pixels = int.from_bytes(image[16:20], "big") * int.from_bytes(image[20:24], "big")
        if pixels > MOST_PIXELS:
            raise self.refused(name, f"has more than {MOST_PIXELS} pixels")
        return image

    def png_url(self, name: str) -> bytes:
        """A PNG image in base64, as a data URL: no image is fetched from anywhere."""
        url = self.text(name)
        if not url.startswith(PNG_URL):
            raise self.refused(
                name, f"must begin with '{PNG_URL}': nothing is fetched or converted"
            )
        return self.png(name, url.removeprefix(PNG_URL))

    def ignore(self, *names: str) -> None:
        """List those that are there among what has no bearing."""
        self._ignored.update(
            (name, None) for name in names if self._left.pop(name, None) is not None
        )

    def drop(self, name: str) -> None:
        """List the object itself, under this name, and read nothing more of it."""
        self._left.clear()
        self._ignored[name] = None

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Refuse those that are there, neither false, zero nor empty, for the reasons given."""
        for name, reason in reasons.items():
            if self._left.pop(name, None):
                raise self.refused(name, reason)

    def end(self) -> None:
        """Refuse what has not been read, in the objects within too."""
        for name in self._left:
            raise self.refused(name, "is not a field that the gateway knows")
        for child in self._children:
            child.end()

    def _place(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def _child(self, value: Any, name: str) -> "Fields":
        self._children.append(Fields(value, self._place(name), self._ignored))
        return self._children[-1]

    def _encodable(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        """The value without halves of surrogate pairs, which no tokenizer takes."""
        check_depth(value, self._place(name))
        try:
            written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise self.refused(name, "has a number that JSON lacks") from None
        clean = encodable(written)
        return value if clean == written else dict(json.loads(clean))
