"""Faults of infrastructure: what hides them is found, and what passes them on is not."""

import contextlib
import os
from pathlib import Path

import pytest

from asking import Asking, failed, found
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Step, Task, Trajectory, Verdict
from turnwise_trust.audit.faults import faults

CHECK = "infrastructure faults"


class Looking(Asking):
    """Its verifier reads a file."""

    file: Path = Path(os.devnull)

    def verify(self, trajectory: Trajectory) -> Verdict:
        self.file.read_text()
        return super().verify(trajectory)  # type: ignore[return-value]


class Hiding(Looking):
    def verify(self, trajectory: Trajectory) -> Verdict:
        try:
            self.file.read_text()
        except OSError:
            return Verdict(0.0, False)
        return Asking.verify(self, trajectory)  # type: ignore[return-value]


class Shrugging(Asking):
    """Its step hides what its tools raise."""

    async def step(self, action: Action) -> Step:
        try:
            return await super().step(action)
        except Exception as error:  # noqa: BLE001 - what is to be found
            self.failed = True
            return Step(Observation(str(error)))

    def reset(self, task: Task, seed: int) -> Observation:
        self.failed = False
        return Observation(task.prompt)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        verdict = await super().verify(trajectory)
        return Verdict(0.0, False) if self.failed else verdict


class Empty(Asking):
    """Its scene is empty where it cannot be read."""

    def reset(self, task: Task, seed: int) -> Observation:
        try:
            self.scene = Path(os.devnull).read_text() or "a scene"
        except OSError:
            self.scene = ""
        return Observation(task.prompt)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        verdict = await super().verify(trajectory)
        return verdict if self.scene else Verdict(0.0, False)


class Worthless(Asking):
    def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(0.0, False)


@pytest.mark.parametrize("environment", [Asking(), Looking()])
def test_an_environment_that_passes_its_faults_on_is_sound(environment: Asking):
    row = found(faults, environment)[CHECK]
    assert row.passed
    assert "its tools raise ConnectionError" in row.note


def test_a_fault_that_an_environment_recovers_from_is_none():
    class Trying(Asking):
        @tool
        async def add(self, one: int, other: int) -> str:
            """Add two numbers."""
            return str(one + other)

        async def verify(self, trajectory: Trajectory) -> Verdict:
            with contextlib.suppress(OSError):
                Path(os.devnull).read_text()
            return await super().verify(trajectory)

    assert found(faults, Trying())[CHECK].passed


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (Hiding(), "files and connections fail in verify(): task train0 is graded with 0"),
        (Shrugging(), "its tools raise TimeoutError: task train0 is graded with 0"),
        (Empty(), "files and connections fail in reset(): task train0 is graded with 0"),
    ],
)
def test_a_fault_that_is_graded_is_found(environment: Asking, said: str):
    assert said in failed(faults, environment)[CHECK].note
    assert not Path(os.devnull).read_text()  # files can be read again


def test_nothing_is_tried_where_nothing_earns():
    assert found(faults, Worthless())[CHECK].passed is None
