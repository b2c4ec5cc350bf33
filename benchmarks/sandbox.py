"""What a run in the sandbox costs, beside a plain subprocess: `python benchmarks/sandbox.py`.

One table: `print(1)` with a sandbox that is ready (warm), without (cold), and as a cell of a
session, for each tier that this machine has. Times are one caller's, in milliseconds: fastest,
median and 90th percentile, since on a busy machine only the first says what the work takes.
Processor time is that of a whole run, making and clearing away its sandbox included. The plain
subprocess is `python -I -S -c`, without isolation, limits or a deadline.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from turnwise.errors import ConfigError
from turnwise.sandbox.settings import TIERS, SandboxSettings
from turnwise_sandbox.sandbox import Sandbox

PROGRAM = "print(1)"
PAUSE = 0.02
"""Seconds between two timed runs, in which a new sandbox gets ready, as while a model samples."""


def milliseconds(run: Callable[[], object], count: int, pause: float = PAUSE) -> str:
    """Fastest, median and 90th percentile of one run."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
        time.sleep(pause)
    median, high = statistics.median(times), statistics.quantiles(times, n=10)[-1]
    return f"{min(times):.1f} / {median:.1f} / {high:.1f}"


def per_second(run: Callable[[], object], count: int, threads: int) -> str:
    """Runs per second from several threads."""
    with ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        for future in [pool.submit(run) for _ in range(count)]:
            future.result()
        return f"{count / (time.perf_counter() - start):.0f}"


def processor_time(processes: tuple[int, ...]) -> float:
    """Seconds used so far by this process, by its ended children, and by these with theirs."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        use = resource.getrusage(who)
        total += use.ru_utime + use.ru_stime
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def readable() -> str:
    """The system's interpreter, if this one is root's own and other users cannot read it."""
    own = Path(sys.executable).resolve()
    private = any(not parent.stat().st_mode & 0o001 for parent in own.parents)
    return "/usr/bin/python3" if private and os.geteuid() == 0 else ""


def plain() -> None:
    """The same without a sandbox."""
    subprocess.run([sys.executable, "-I", "-S", "-c", PROGRAM], capture_output=True, check=True)


def expect_one(sandbox: Sandbox) -> None:
    """One run, which has to be right."""
    result = sandbox.run_python(PROGRAM)
    if result.stdout.text != "1\n":
        raise SystemExit(f"the run went wrong: {result}")


def measure_plain(count: int, threads: int) -> str:
    """The line of the plain subprocess."""
    start = processor_time(())
    cold = milliseconds(plain, count)
    used = (processor_time(()) - start) / count * 1e3
    return (
        f"| plain subprocess | – | {cold} | – | {used:.1f} | {per_second(plain, count, threads)} |"
    )


def measure(tier: str, count: int, threads: int, python: str) -> str:
    """The line of one tier."""
    common = {"tier": tier, "concurrency": threads}
    common["python"] = python if tier == "unisolated" else ""
    with Sandbox(SandboxSettings(**common, warm=threads)) as sandbox:  # type: ignore[arg-type]
        expect_one(sandbox)
        warm = milliseconds(lambda: expect_one(sandbox), count)
        many = per_second(lambda: expect_one(sandbox), count, threads)
        with sandbox.session() as session:
            session.run(PROGRAM)
            cell = milliseconds(lambda: session.run(PROGRAM), count, 0.0)
    with Sandbox(SandboxSettings(**common, warm=0)) as sandbox:  # type: ignore[arg-type]
        expect_one(sandbox)
        launcher = sandbox.launcher_process
        start = processor_time((launcher,))
        cold = milliseconds(lambda: expect_one(sandbox), count)
        used = (processor_time((launcher,)) - start) / count * 1e3
    return f"| {tier} | {warm} | {cold} | {cell} | {used:.1f} | {many} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--python", default=readable(), help="interpreter for the tier unisolated")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}, {arguments.count} runs each\n")
    print("| ms: fastest / median / 90% | warm | cold | cell | processor ms | runs per second |")
    print("|---|---|---|---|---|---|", flush=True)
    print(measure_plain(arguments.count, arguments.threads), flush=True)
    for tier in TIERS:
        try:
            print(measure(tier, arguments.count, arguments.threads, arguments.python), flush=True)
        except ConfigError as error:
            print(f"{tier} is not measured: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
