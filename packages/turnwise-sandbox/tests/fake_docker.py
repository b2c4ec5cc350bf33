"""A `docker` for tests: containers are processes in bubblewrap, started by root.

It knows the options that turnwise gives and refuses all others, as the real one would refuse what
is misspelled. It does not limit memory and processes. First argument: a folder, in which each run's
options are noted, and whose files `down` and `slow` make the engine fail.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

FLAGS = {"--rm", "--interactive", "--read-only"}
VALUES = {
    *("--pull", "--name", "--network", "--hostname", "--log-driver", "--user", "--cap-drop"),
    *("--security-opt", "--cap-add", "--memory", "--memory-swap", "--shm-size", "--pids-limit"),
    *("--workdir", "--tmpfs", "--env", "--entrypoint"),
}
IMAGE = "python:3.13-slim"


def parsed(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options, and the image with what follows it."""
    options: dict[str, list[str]] = {}
    while words[0].startswith("-"):
        name = words.pop(0)
        if name in FLAGS:
            options.setdefault(name, [])
        elif name in VALUES:
            options.setdefault(name, []).append(words.pop(0))
        else:
            fail(125, f"unknown flag: {name}")
    return options, words


def fail(status: int, text: str) -> None:
    print(f"docker: {text}", file=sys.stderr)
    raise SystemExit(status)


def run(state: Path, words: list[str]) -> None:
    options, (image, *arguments) = parsed(words)
    if image != IMAGE:
        fail(125, f"No such image: {image}")
    (name,) = options["--name"]
    (state / f"{name}.json").write_text(json.dumps([options, arguments]))
    information, said = os.pipe()
    command = ["bwrap", "--die-with-parent", "--as-pid-1", "--cap-add", "ALL", "--unshare-pid"]
    command += ["--unshare-net", "--unshare-ipc", "--dev-bind", "/", "/", "--proc", "/proc"]
    for one in (*options["--tmpfs"], f"/dev/shm:size={options['--shm-size'][0]}"):
        place, _, given = one.partition(":")
        inside = dict(part.split("=") for part in given.split(",") if "=" in part)
        if unknown := inside.keys() - {"size"}:
            fail(125, f"unknown mount option {unknown}")  # as podman says of nr_inodes
        # The working folder has been made, as 0755, and runc gives that to what is mounted on it.
        mode = "0755" if [place] == options["--workdir"] else "1777"
        command += ["--perms", mode, "--size", inside["size"], "--tmpfs", place]
    command += ["--chdir", options["--workdir"][0], "--info-fd", str(said), "--"]
    environment = dict(one.split("=", 1) for one in options["--env"]) | {"FROM_THE_IMAGE": "1"}
    python = "/usr/bin/python3"  # readable by all users
    bwrap = str(shutil.which("bwrap"))
    process = subprocess.Popen(
        [*command, python, *arguments], executable=bwrap, env=environment, pass_fds=[said]
    )
    os.close(said)
    with open(information) as file:
        child = json.load(file)["child-pid"]
    # Readers see the number whole or not at all.
    written = state / f"{name}.written"
    written.write_text(str(child))
    written.rename(state / f"{name}.pid")
    raise SystemExit(process.wait() & 0xFF)


def main() -> None:
    state, words = Path(sys.argv[1]), sys.argv[2:]
    if (state / "slow").exists():
        time.sleep(60)
    if (state / "down").exists():
        fail(125 if words[0] == "run" else 1, "Cannot connect to the Docker daemon.")
    if words[:2] == ["image", "inspect"]:
        if words[-1] != IMAGE:
            fail(1, f"No such image: {words[-1]}")
        print("sha256:0123456789ab")
    elif words[:2] == ["rm", "--force"]:
        os.kill(int((state / f"{words[2]}.pid").read_text()), signal.SIGKILL)
    elif words[0] == "run":
        run(state, words[1:])
    else:
        fail(1, f"unknown command: {words[0]}")


if __name__ == "__main__":
    main()
