"""Job files for a cluster's scheduler: the command that trains a recipe, on one node or several.

The text alone is made here. On several nodes Ray is begun on each, and the command runs on the
first one with `cluster.address=auto`. Each job begins the run or goes on with it, whichever its
folder says, so a scheduler may start it again as often as it likes. Not here: what submits them
(`commands/launching.py`), and what the workers do.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from turnwise.errors import ConfigError

WARNING = 300
"""Seconds before its end at which Slurm warns a job, which then saves: as long as an update."""
RESTARTS = 10
"""Times that a scheduler starts a job again which was not finished."""
PORT = 6379
"""The port of Ray's first node, which is Ray's own default."""


@dataclass(frozen=True)
class Job:
    """A run, and what it needs of a cluster. Numbers are of one node.

    Args:
        name: of the job; letters, digits and hyphens.
        recipe: the name of a recipe or a file, as each node knows it.
        run: the run's folder, on a disk that every node and every restart sees.
        setup: a line of shell before the command, such as one that activates an environment.
        image: of a container with turnwise and its extra `cluster` in it.
        volume: a claim on Kubernetes or a bucket for SkyPilot, mounted where `mount` says.
    """

    name: str
    recipe: str
    run: str
    overrides: tuple[str, ...] = ()
    nodes: int = 1
    cpus: int = 8
    gpus: int = 0
    gpu: str = ""
    hours: float = 24.0
    setup: str = ""
    image: str = ""
    volume: str = ""
    mount: str = "/runs"

    @property
    def command(self) -> str:
        """The shell command of the node that trains: it begins the run, or goes on with it."""
        run = shlex.quote(self.run)
        address = ["cluster.address=auto"] if self.nodes > 1 else []
        words = ["turnwise", "train", self.recipe, "--run", self.run, *self.overrides, *address]
        return (
            f"if [ -f {run}/config.toml ]; then exec turnwise train --resume {run}; "
            f"else exec {shlex.join(words)}; fi"
        )


def slurm(job: Job) -> str:
    """The batch script of a job for `sbatch`. A shorter time than asked for, or a preemption, is
    announced by SIGUSR1: the run saves, ends with exit code 75, and is queued again."""
    train = f"bash -c {shlex.quote(job.command)}"
    if job.nodes > 1:
        start = [
            'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            f'srun ray symmetric-run --address "$head:{PORT}" '
            f'--min-nodes "$SLURM_JOB_NUM_NODES" -- {train} &',
            "job=$!",
            "# Ray's own processes would end by the signal, so it goes to the trainer alone.",
            'trap \'pkill -USR1 -u "$USER" -f "^[^ ]+ [^ ]*turnwise train"\' USR1',
        ]
    else:
        start = [f"{train} &", "job=$!", "trap 'kill -USR1 \"$job\"' USR1"]
    gpus = [f"#SBATCH --gpus-per-node={f'{job.gpu}:' if job.gpu else ''}{job.gpus}"]
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={job.name}",
        f"#SBATCH --nodes={job.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --cpus-per-task={job.cpus}",
        *(gpus if job.gpus else []),
        f"#SBATCH --time={round(job.hours * 60)}",
        f"#SBATCH --signal=B:USR1@{WARNING}",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        f"#SBATCH --output={job.name}-%j.log",
        "",
        *([job.setup] if job.setup else []),
        *start,
        'wait "$job"',
        'while kill -0 "$job" 2>/dev/null; do wait "$job"; done # a signal ends a wait alone',
        'wait "$job"; code=$?',
        '[ "$code" -ne 75 ] || scontrol requeue "$SLURM_JOB_ID"',
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def kubernetes(job: Job) -> str:
    """A RayJob (KubeRay) of a job, for `kubectl apply`. Raises ConfigError without an image and a
    volume."""
    if not job.image or not job.volume:
        raise ConfigError(
            "on Kubernetes give --image, a container with turnwise[cluster] in it, and --volume, "
            "the claim of a volume that keeps the run while pods come and go"
        )
    if job.setup:
        raise ConfigError("on Kubernetes the image is set up already: leave --setup out")
    cluster: dict[str, Any] = {
        "headGroupSpec": {"rayStartParams": {}, "template": _pod(job, "head")},
    }
    if job.nodes > 1:
        others = job.nodes - 1
        group = {"groupName": "workers", "replicas": others, "minReplicas": others}
        group |= {"maxReplicas": others, "rayStartParams": {}, "template": _pod(job, "worker")}
        cluster["workerGroupSpecs"] = [group]
    return _yaml(
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {"name": job.name},
            "spec": {
                "entrypoint": f"bash -c {shlex.quote(job.command)}",
                "shutdownAfterJobFinishes": True,
                "backoffLimit": RESTARTS,
                "activeDeadlineSeconds": round(job.hours * 3600),
                "rayClusterSpec": cluster,
            },
        }
    )


def skypilot(job: Job) -> str:
    """A task of SkyPilot for `sky jobs launch`. Raises ConfigError without a volume."""
    if not job.volume:
        raise ConfigError(
            "for SkyPilot give --volume, the name of a bucket that keeps the run while machines "
            "come and go"
        )
    resources: dict[str, Any] = {"cpus": f"{job.cpus}+"}
    if job.gpus:
        if not job.gpu:
            raise ConfigError("for SkyPilot say which GPUs: --gpu H100")
        resources["accelerators"] = f"{job.gpu}:{job.gpus}"
    if job.image:
        resources["image_id"] = f"docker:{job.image}"
    restarts = {"max_restarts_on_errors": RESTARTS, "recover_on_exit_codes": [75]}
    resources["job_recovery"] = restarts
    run = job.command
    if job.nodes > 1:  # `ray stop`, and so symmetric-run, would end SkyPilot's own Ray
        run = (
            "~/sky_templates/ray/start_cluster\n"
            f'if [ "$SKYPILOT_NODE_RANK" -eq 0 ]; then\n  {job.command}\nfi'
        )
    task = {
        "name": job.name,
        "num_nodes": job.nodes,
        "workdir": ".",
        "resources": resources,
        "file_mounts": {job.mount: {"name": job.volume, "mode": "MOUNT_CACHED"}},
        **({"setup": job.setup} if job.setup else {}),
        "run": run,
    }
    return _yaml(task)


def _pod(job: Job, name: str) -> dict[str, Any]:
    """A pod of a RayCluster: one container that has the whole of it."""
    needs = {"cpu": str(job.cpus), **({"nvidia.com/gpu": str(job.gpus)} if job.gpus else {})}
    container = {
        "name": name,
        "image": job.image,
        "resources": {"requests": needs, "limits": dict(needs)},
        "volumeMounts": [{"name": "runs", "mountPath": job.mount}],
    }
    volume = {"name": "runs", "persistentVolumeClaim": {"claimName": job.volume}}
    return {"spec": {"containers": [container], "volumes": [volume]}}


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # yaml has no types
    """Writes a text of several lines as it reads."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def _yaml(value: Mapping[str, Any]) -> str:
    return str(yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False, width=1000))
