"""What `MLflow` uses of mlflow 3.17, with its signatures: a server that lives in this module."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from mlflow.entities import Metric, Param

EXPERIMENTS: dict[str, str] = {}
RUNS: dict[str, dict[str, Any]] = {}


class MlflowClient:
    def __init__(self, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        pass

    def get_experiment_by_name(self, name: str) -> Any:
        known = EXPERIMENTS.get(name)
        return None if known is None else SimpleNamespace(experiment_id=known)

    def create_experiment(
        self,
        name: str,
        artifact_location: str | None = None,
        tags: dict[str, Any] | None = None,
    ) -> str:
        EXPERIMENTS[name] = str(len(EXPERIMENTS))
        return EXPERIMENTS[name]

    def search_runs(
        self,
        experiment_ids: list[str],
        filter_string: str = "",
        run_view_type: int = 1,
        max_results: int = 1000,
        order_by: list[str] | None = None,
        page_token: str | None = None,
    ) -> list[Any]:
        wanted = filter_string.removeprefix("tags.`turnwise.id` = '").removesuffix("'")
        return [
            SimpleNamespace(info=SimpleNamespace(run_id=name))
            for name, run in RUNS.items()
            if run["experiment"] in experiment_ids and run["tags"]["turnwise.id"] == wanted
        ]

    def create_run(
        self,
        experiment_id: str,
        start_time: int | None = None,
        tags: dict[str, Any] | None = None,
        run_name: str | None = None,
    ) -> Any:
        name = f"run-{len(RUNS)}"
        RUNS[name] = {
            "experiment": experiment_id,
            "tags": tags,
            "name": run_name,
            "metrics": [],
            "params": {},
            "status": "RUNNING",
        }
        return SimpleNamespace(info=SimpleNamespace(run_id=name))

    def log_batch(
        self,
        run_id: str,
        metrics: Sequence[Metric] = (),
        params: Sequence[Param] = (),
        tags: Sequence[Any] = (),
        synchronous: bool | None = None,
    ) -> None:
        if len(params) > 100:
            raise ValueError("a batch has at most 100 params")
        RUNS[run_id]["metrics"] += [(entry.key, entry.value, entry.step) for entry in metrics]
        RUNS[run_id]["params"] |= {entry.key: entry.value for entry in params}

    def set_terminated(
        self, run_id: str, status: str | None = None, end_time: int | None = None
    ) -> None:
        RUNS[run_id]["status"] = status or "FINISHED"
