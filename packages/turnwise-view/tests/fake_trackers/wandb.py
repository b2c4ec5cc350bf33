"""What `WeightsAndBiases` uses of wandb 0.31; it keeps what it is given."""

from typing import Any

CALLS: list[tuple[str, Any]] = []
FAILING_STEPS: set[int] = set()


class Run:
    def log(self, data: dict[str, Any], step: int) -> None:
        if step in FAILING_STEPS:
            raise ConnectionError("no network\nand more lines")
        CALLS.append(("log", (data, step)))

    def finish(self) -> None:
        print("wandb says goodbye")
        CALLS.append(("finish", None))


def init(project: str, dir: str, id: str, name: str, config: dict[str, Any], resume: str) -> Run:
    CALLS.append(
        ("init", {"project": project, "name": name, "id": id, "dir": dir, "resume": resume})
    )
    return Run()
