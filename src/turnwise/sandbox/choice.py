"""The sandbox that a recipe's table `[sandbox]` asks for, of those that are installed."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from turnwise.errors import ConfigError, unknown_name, wrong_value
from turnwise.registry import Registry, derives_from
from turnwise.sandbox.base import CodeSandbox
from turnwise.sandbox.settings import Limits, SandboxSettings

SANDBOXES: Registry[Callable[[SandboxSettings], CodeSandbox]] = Registry(
    "sandbox", derives_from(CodeSandbox), "derive the class from CodeSandbox"
)


def make_sandbox(table: Mapping[str, Any] = {}, limits: Limits | None = None) -> CodeSandbox:
    """The sandbox of a table with fields of `SandboxSettings`; `limits` are what its own table
    `limits` changes. Nothing is started.

    Example: make_sandbox({"kind": "docker", "limits": {"seconds": 5.0}}).
    Raises ConfigError for unknown fields, wrong types, and what contradicts itself,
    MissingExtraError for a kind that is not installed.
    """
    changed = table.get("limits", {})
    if not isinstance(changed, Mapping):
        raise ConfigError("sandbox.limits is a table, as in sandbox.limits.seconds=5")
    given = {name: value for name, value in table.items() if name != "limits"}
    whole = dataclasses.replace(limits or Limits(), **_checked(Limits, changed, "sandbox.limits."))
    settings = SandboxSettings(limits=whole, **_checked(SandboxSettings, given, "sandbox."))
    return SANDBOXES.get(settings.kind)(settings)


def _checked(kind: type[Any], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values, each of the type that its field has."""
    fields: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(kind)}
    checked = {}
    for name, value in table.items():
        if name not in fields:
            raise unknown_name("key", f"{where}{name}", [f"{where}{field}" for field in fields])
        try:
            checked[name] = TypeAdapter(fields[name]).validate_python(value)
        except ValidationError as error:
            raise wrong_value(f"{where}{name}", error.errors()[0]) from None
    return checked
