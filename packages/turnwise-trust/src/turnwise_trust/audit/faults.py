"""Faults of infrastructure that are injected: an episode has to be ungraded then, never worth less.

An environment is derived from the audited one in which something fails that no agent can help: its
tools, its sandbox, or files, programs and connections while it begins and while it judges. Tried
are episodes that earned something without a fault. One that is graded all the same, and earns less,
was judged by the fault: a policy would be punished for a machine's failure.
"""

import errno
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from turnwise.environments.base import Environment
from turnwise.errors import InfrastructureError
from turnwise.sandbox.base import CodeSandbox, Session
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import Limits
from turnwise.storage.audits import Finding
from turnwise.tools.tool import Tool
from turnwise.types import Observation, Task, Trajectory, Verdict
from turnwise_trust.audit.attempts import scripted
from turnwise_trust.audit.plays import Script, compared
from turnwise_trust.audit.subject import Subject

TRIED = 3
"""Episodes that are played with each fault."""
SAID = "made to fail by the audit"
EVENTS = frozenset(
    {"open", "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.posix_spawn"}
)
"""Python's own audit events of what asks the operating system for a resource."""
CODE = (".py", ".pyc", ".so")
"""Files that an import opens."""


@dataclass
class Fault:
    """A fault that waits to be met."""

    error: Callable[[], Exception]
    met: bool = False

    def strike(self) -> NoReturn:
        self.met = True
        raise self.error()


class ToolsFail(Environment):
    """Each tool raises."""

    _fault: Fault

    def tools(self) -> list[Tool]:
        return [_failing(one, self._fault) for one in super().tools()]


class BeginningFails(Environment):
    """Files, programs and connections fail while the scene is set."""

    _fault: Fault

    async def reset(self, task: Task, seed: int) -> Observation:
        with _refused(self._fault):
            return await super().reset(task, seed)


class JudgingFails(Environment):
    """Files, programs and connections fail while the episode is judged."""

    _fault: Fault

    async def verify(self, trajectory: Trajectory) -> Verdict:
        with _refused(self._fault):
            return await super().verify(trajectory)


class SandboxFails(Environment):
    """Its sandbox cannot start anything."""

    _fault: Fault


class FailingSandbox(CodeSandbox):
    """A sandbox whose every run ends by a failure of its own."""

    def __init__(self, inner: CodeSandbox, fault: Fault) -> None:
        self.settings, self._fault = inner.settings, fault

    def find_tier(self) -> str:
        return "audit"

    def run_python(self, source: str, **options: Any) -> Result:
        del source
        return self.run([], **options)

    def run(self, command: Any, *, limits: Limits | None = None, **options: Any) -> Result:
        del command, options
        self._fault.met = True
        return Result(Status.INFRASTRUCTURE, "audit", limits or self.settings.limits, error=SAID)

    def open_session(self, **options: Any) -> Session:
        del options
        self._fault.strike()

    def close(self) -> None:
        """Nothing runs in it."""


def _failing(tool: Tool, fault: Fault) -> Tool:
    @functools.wraps(tool.function)
    def fail(**arguments: Any) -> NoReturn:
        del arguments
        fault.strike()

    return replace(tool, function=fail, isolated=None)


_faults: list[Fault] = []
"""The fault that is met by whatever asks for a resource now."""


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if _faults and event in EVENTS and not str(arguments[0]).endswith(CODE):
        _faults[0].strike()


@functools.cache
def _listen() -> None:
    """Once in a process: Python keeps such a hook for ever."""
    sys.addaudithook(_refuse)


@contextmanager
def _refused(fault: Fault) -> Iterator[None]:
    _listen()
    _faults.append(fault)
    try:
        yield
    finally:
        _faults.remove(fault)


def _unreadable() -> Exception:
    return OSError(errno.EIO, SAID)


FAULTS: Mapping[str, tuple[type[Environment], Callable[[], Exception]]] = {
    "its tools raise InfrastructureError": (ToolsFail, lambda: InfrastructureError(SAID)),
    "its tools raise ConnectionError": (ToolsFail, lambda: ConnectionError(SAID)),
    "its tools raise TimeoutError": (ToolsFail, lambda: TimeoutError(SAID)),
    "its sandbox fails": (SandboxFails, lambda: InfrastructureError(SAID)),
    "files and connections fail in reset()": (BeginningFails, _unreadable),
    "files and connections fail in verify()": (JudgingFails, _unreadable),
}


def faults(subject: Subject) -> Iterator[Finding]:
    """Play episodes that earn something again, each with a fault."""
    known = _earning(subject)
    if not known:
        yield Finding("infrastructure faults", note="not tried: no known episode earns anything")
        return
    swallowed, met = [], []
    for name, (kind, error) in FAULTS.items():
        fault = Fault(error)
        less = [
            said
            for script, earned in known
            if (said := _less(subject, script, earned, kind, fault))
        ]
        met += [name] if fault.met else []
        swallowed += [f"{name}: {less[0]}"] if less else []
    yield Finding(
        "infrastructure faults",
        float(len(swallowed)),
        bound=0.0,
        passed=not swallowed,
        note="; ".join(swallowed)
        or f"{len(known)} episodes that earn something are ungraded, or earn as much, where "
        f"{', '.join(met) or 'nothing: they ask for no resource'}",
        remedy="Let such errors pass, or raise InfrastructureError: the episode is ungraded then.",
    )


def _earning(subject: Subject) -> list[tuple[Script, float]]:
    """Episodes of several turns first: they use most of the environment."""
    scripts = {
        (task.id, kind): Script(kind, task, actions)
        for task in compared(subject, len(FAULTS))
        for kind, actions in (
            ("oracle", subject.oracle.get(task.id, ())),
            ("random", subject.random_actions(task)),
        )
    }
    earned = [
        (scripts[one.task.id, kind], one.reward)
        for kind, found in (("oracle", subject.of_oracle), ("random", subject.of_random))
        for one in found
        if (one.task.id, kind) in scripts and one.reward is not None and one.reward > 0
    ]
    return sorted(earned, key=lambda one: -len(one[0].actions))[:TRIED]


def _less(
    subject: Subject, script: Script, earned: float, kind: type[Environment], fault: Fault
) -> str:
    """A sentence's end where an episode meets the fault, is graded and earns less; else empty."""
    data: dict[str, Any] = {"_fault": fault}
    if kind is SandboxFails:
        if subject.environment.sandbox is None:
            return ""
        data["sandbox"] = FailingSandbox(subject.environment.sandbox, fault)
    met, fault.met = fault.met, False
    failing = replace(subject, environment=subject.environment.under(kind, **data))
    failing.begin()
    (episode,) = failing.play(scripted(script.actions), [script.task])
    struck, fault.met = fault.met, met or fault.met
    if not struck or episode.reward is None or episode.reward >= earned:
        return ""
    return f"task {script.task.id} is graded with {episode.reward:g} in place of {earned:g}"
