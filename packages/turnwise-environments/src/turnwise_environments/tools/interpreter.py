"""The tool that works numbers out, a calculator or Python, for an environment to derive from."""

from collections.abc import Mapping
from typing import Any

from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, ToolError
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.result import Result
from turnwise.sandbox.settings import MEBIBYTE, Limits
from turnwise.tools.tool import Tool, tool
from turnwise.types import ToolCall
from turnwise_environments.tools.calculator import calculate
from turnwise_sandbox.tools.python import observation


class InterpreterTools(Environment):
    """`calculator` or `python`, whichever `set_interpreter` chose, beside an environment's own."""

    interpreter: str = "none"

    def set_interpreter(self, name: str, sandbox: Mapping[str, Any]) -> None:
        """Offer `calculator`, `python` or, for "none", neither. `sandbox` is a recipe's table for
        `python` (see `make_sandbox`). Raises ConfigError for one where nothing runs in it."""
        limits = Limits(seconds=5.0, cpu_seconds=5.0, memory=256 * MEBIBYTE)
        if sandbox and name != "python":
            place = self.spec.name
            raise ConfigError(f"{place}: [sandbox] is for interpreter = 'python': remove it")
        self.sandbox = make_sandbox(sandbox, limits) if name == "python" else None
        self.interpreter = name

    def tools(self) -> list[Tool]:
        others = {"calculator", "python"} - {self.interpreter}
        return [found for found in super().tools() if found.name not in others]

    @tool
    def calculator(self, expression: str) -> str:
        """Work out arithmetic such as (3 + 4) * 2: numbers, + - * / // % **, sqrt, round."""
        self._check_works()
        return calculate(expression)

    @tool
    def python(self, code: str) -> str:
        """Run a Python program and see what it prints. Nothing stays for the next one."""
        self._check_works()
        assert self.sandbox is not None
        return self._printed(self.sandbox.run_python(code).checked())

    def calculation(self, expression: str) -> ToolCall:
        """The call that works an expression out."""
        if self.interpreter == "python":
            return ToolCall("python", {"code": f"print({expression})"})
        return ToolCall("calculator", {"expression": expression})

    def _printed(self, result: Result) -> str:
        return observation(result, False)

    def _check_works(self) -> None:
        """Nothing: the tools work."""


class BrokenInterpreter(InterpreterTools):
    """The tool never works, so the model has to work out the answer."""

    def _check_works(self) -> None:
        raise ToolError(f"the {self.interpreter} does not work now")
