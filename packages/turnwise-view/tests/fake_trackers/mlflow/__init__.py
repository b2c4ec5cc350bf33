"""What `MLflow` uses of mlflow 3.17, as a server that lives in this module."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from mlflow.entities import Metric, Param

EXPERIMENTS: dict[str, str] = {}
RUNS: dict[str, dict[str, Any]] = {}


class MlflowClient:
    def get_experiment_by_name(self, name: str) -> Any:
        known = EXPERIMENTS.get(name)
        return None if known is None else SimpleNamespace(experiment_id=known)

    def create_experiment(self, name: str) -> str:
        EXPERIMENTS[name] = str(len(EXPERIMENTS))
        return EXPERIMENTS[name]

    def search_runs(self, experiment_ids: list[str], filter_string: str) -> list[Any]:
        wanted = filter_string.removeprefix("tags.`turnwise.id` = '").removesuffix("'")
        return [
            SimpleNamespace(info=SimpleNamespace(run_id=name))
            for name, run in RUNS.items()
            if run["experiment"] in experiment_ids and run["tags"]["turnwise.id"] == wanted
        ]

    def create_run(self, experiment_id: str, tags: dict[str, Any], run_name: str) -> Any:
        name = f"run-{len(RUNS)}"
        RUNS[name] = {"experiment": experiment_id, "tags": tags, "name": run_name}
        RUNS[name] |= {"metrics": [], "params": {}, "status": "RUNNING"}
        return SimpleNamespace(info=SimpleNamespace(run_id=name))

    def log_batch(
        self, run_id: str, metrics: Sequence[Metric] = (), params: Sequence[Param] = ()
    ) -> None:
        if len(params) > 100:
            raise ValueError("a batch has at most 100 params")
        RUNS[run_id]["metrics"] += [(entry.key, entry.value, entry.step) for entry in metrics]
        RUNS[run_id]["params"] |= {entry.key: entry.value for entry in params}

    def set_terminated(self, run_id: str) -> None:
        RUNS[run_id]["status"] = "FINISHED"
