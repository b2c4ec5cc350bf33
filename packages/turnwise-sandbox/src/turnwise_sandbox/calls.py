"""Plain values as text with their types kept, and the program that calls a function in a sandbox.

Standard library only: the text of this file is itself the program (see grading.py). Values that
are not plain, an object that claims to equal everything among them, have no text.
"""

import importlib
import json
import sys
from typing import Any

RETURNED = "returned.by.turnwise.jsonl"
"""File in the work folder with one line for each call."""
LONGEST_INTEGER = 10_000
"""Bits of an integer in JSON: Python refuses to write much longer ones as decimals, or to read
them."""


def encode(value: Any) -> Any:
    """Plain data as what JSON can write; TypeError for anything else, subclasses included."""
    # Not isinstance: a subclass may say anything of itself.
    kind = type(value)
    if kind is int and value.bit_length() > LONGEST_INTEGER:
        return {"int": hex(value)}
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [encode(one) for one in value]
    if kind in (tuple, set, frozenset):
        members = [encode(one) for one in value]
        return {kind.__name__: members if kind is tuple else sorted(members, key=json.dumps)}
    if kind is dict:
        return {"dict": [[encode(key), encode(one)] for key, one in value.items()]}
    raise TypeError(f"{kind.__name__} is not plain data")


def decode(value: Any) -> Any:
    """The value that `encode` wrote; ValueError for what it does not write."""
    if isinstance(value, list):
        return [decode(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("not written by encode")
    ((kind, members),) = value.items()
    if kind == "dict":
        return {decode(key): decode(one) for key, one in members}
    if kind == "int":
        return int(members, 16)
    kinds: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}
    if kind not in kinds:
        raise ValueError("not written by encode")
    return kinds[kind](decode(one) for one in members)


def call_all() -> None:
    """Read a target and calls from stdin, make them in order, and write what each returned."""
    asked = json.load(sys.stdin)
    module, _, name = asked["target"].partition(":")
    function = getattr(importlib.import_module(module), name)
    with open(RETURNED, "x") as file:  # not one that the files brought along
        for arguments, keywords in asked["calls"]:
            try:
                said = {"value": encode(function(*decode(arguments), **decode(keywords)))}
            except BaseException as error:  # noqa: BLE001 - a call's failure is its result
                said = {"error": f"{type(error).__name__}: {error}"[:500]}
            file.write(json.dumps(said) + "\n")
            file.flush()  # a later call may end the process
