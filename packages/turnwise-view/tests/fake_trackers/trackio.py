"""What `Trackio` uses of trackio 0.43; it keeps what it is given."""

from typing import Any

CALLS: list[tuple[str, Any]] = []


class Run:
    def log(self, metrics: dict[str, Any], step: int) -> None:
        CALLS.append(("log", (metrics, step)))

    def finish(self) -> None:
        CALLS.append(("finish", None))


def init(project: str, name: str, config: dict[str, Any], resume: str) -> Run:
    print("* Trackio project initialized")
    CALLS.append(("init", {"project": project, "name": name, "resume": resume}))
    return Run()
