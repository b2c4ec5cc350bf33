"""What `Trackio` uses of trackio 0.43, with its signatures; it keeps what it is given."""

from typing import Any

CALLS: list[tuple[str, Any]] = []


class Run:
    def log(self, metrics: dict[str, Any], step: int | None = None) -> None:
        CALLS.append(("log", (metrics, step)))

    def finish(self) -> None:
        CALLS.append(("finish", None))


def init(
    project: str,
    name: str | None = None,
    group: str | None = None,
    space_id: str | None = None,
    server_url: str | None = None,
    dataset_id: str | None = None,
    bucket_id: str | None = None,
    config: dict[str, Any] | None = None,
    resume: str = "never",
) -> Run:
    print("* Trackio project initialized")
    CALLS.append(("init", {"project": project, "name": name, "resume": resume}))
    return Run()
