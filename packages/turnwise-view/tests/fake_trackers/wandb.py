"""What `WeightsAndBiases` uses of wandb 0.31, with its signatures; it keeps what it is given."""

from typing import Any

CALLS: list[tuple[str, Any]] = []
FAILING_STEPS: set[int | None] = set()


class Run:
    def log(
        self, data: dict[str, Any], step: int | None = None, commit: bool | None = None
    ) -> None:
        if step in FAILING_STEPS:
            raise ConnectionError("no network\nand more lines")
        CALLS.append(("log", (data, step)))

    def finish(self, exit_code: int | None = None) -> None:
        print("wandb says goodbye")
        CALLS.append(("finish", exit_code))


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: str | None = None,
    id: str | None = None,
    name: str | None = None,
    notes: str | None = None,
    tags: list[str] | None = None,
    config: dict[str, Any] | str | None = None,
    config_exclude_keys: list[str] | None = None,
    config_include_keys: list[str] | None = None,
    allow_val_change: bool | None = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    force: bool | None = None,
    reinit: bool | str | None = None,
    resume: bool | str | None = None,
) -> Run:
    CALLS.append(
        ("init", {"project": project, "name": name, "id": id, "dir": dir, "resume": resume})
    )
    return Run()
