"""Running Python source in a process that is already there: once, or cell by cell.

Standard library only. The code that runs here can change everything here: what this process says is
worth no more than what the code prints.
"""

import atexit
import functools
import json
import linecache
import os
import sys
import types
from collections.abc import Callable, Iterator

TYPE_CHECKING = False  # not every program needs typing, threading, traceback and ast
if TYPE_CHECKING:
    from typing import IO, Any

NAME = "<code>"


def run_once(module: types.ModuleType, source: str) -> int:
    """Run a program as `__main__`; returns its exit status. Threads and atexit are waited for."""
    status, _ = _guarded(lambda: exec(_compiled(source, NAME), module.__dict__))
    if "threading" in sys.modules:
        _wait_for_threads()
    atexit._run_exitfuncs()  # os._exit will not
    _flush()
    return status


def _wait_for_threads() -> None:
    import threading

    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def run_session(module: types.ModuleType, channel: int) -> int:
    """Run cells, lines of JSON with a token each, in one namespace; the value of a last expression
    is printed. Returns the exit status when there are no more, or a cell exits."""
    with open(channel, "r+b", buffering=0) as connection:
        for number, line in enumerate(_lines(connection), 1):
            job = json.loads(line)
            status, error = _guarded(functools.partial(_cell, job["source"], number, module))
            if error == "SystemExit":
                break
            _flush()
            said = {"token": job["token"], "error": error}
            connection.write(json.dumps(said).encode() + b"\n")
        else:
            status = 0
    _flush()
    return status


def _lines(connection: "IO[bytes]") -> Iterator[bytes]:
    buffered = b""
    while part := connection.read(1 << 16):
        buffered += part
        *lines, buffered = buffered.split(b"\n")
        yield from lines


def main_module() -> types.ModuleType:
    """A new `__main__`, and a path of modules without those of the sandbox."""
    # What the code imports by these names is to be its own, or missing.
    own = ("turnwise", "turnwise_sandbox")
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        del sys.modules[name]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = [NAME]
    sys.path.insert(0, os.getcwd())
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        stream = open(descriptor, mode, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return module


def _compiled(source: str, name: str) -> "Any":
    # None is the time of change: without one, linecache does not look for such a file.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return compile(source, name, "exec")


def _cell(source: str, number: int, module: types.ModuleType) -> None:
    import ast

    name = f"<cell {number}>"
    _compiled(source, name)  # keeps the text for tracebacks
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, name, "exec"), module.__dict__)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), module.__dict__)
        if value is not None:
            module.__dict__["_"] = value
            print(repr(value))


def _guarded(run: Callable[[], None]) -> tuple[int, str]:
    """Exit status of a function, as the interpreter gives it, and the class of what it raised;
    errors go to stderr."""
    try:
        run()
        return 0, ""
    except SystemExit as leaving:
        if isinstance(leaving.code, int) or leaving.code is None:
            return (leaving.code or 0) & 0xFF, "SystemExit"
        print(leaving.code, file=sys.stderr)
        return 1, "SystemExit"
    except BaseException as error:  # noqa: BLE001 - as the interpreter does at the top
        _show(error)
        return 1, type(error).__name__


def _show(error: BaseException) -> None:
    import traceback

    trace = error.__traceback__
    # As in a plain interpreter, the traceback begins in the code itself.
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.stdout.flush()
    traceback.print_exception(type(error), error, trace)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # closed by the code itself
