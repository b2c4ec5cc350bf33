"""How commands fail: one line, an exit code, and characters that the terminal can show.

Exit codes: 0 done · 1 a bug in turnwise · 2 the user's mistake · 3 the run stopped itself or the
machine failed, a full disk for example · 130 interrupted (Ctrl-C) · 143 ended by SIGTERM · 75 ended
by SIGUSR1, to be run again. The last three save first (`stopping.py`).
"""

import errno
from typing import NoReturn

from turnwise.errors import NotSupportedError, UserError, first_line
from turnwise.monitor.display import Console
from turnwise.stopping import Stopped


def first_error(error: BaseException) -> BaseException:
    """The first error inside a task group, which is what went wrong."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


FULL = "out of memory", "ALLOC_FAILED", "can't allocate memory"
"""Words of PyTorch where a GPU, one of its libraries, or the machine has no memory left."""


def full_memory(error: BaseException) -> str:
    """Say how much memory a run, or a check of its model, had, and what needs less; else ""."""
    error = (error.__cause__ or error) if isinstance(error, NotSupportedError) else error
    if not (isinstance(error, RuntimeError) and any(words in str(error) for words in FULL)):
        return ""
    # PyTorch's advice, about its own allocator, comes after the figures.
    figures = first_line(error).partition(" If reserved")[0]
    return (
        f"{figures} Updates need less with a lower learning.tokens_per_micro_batch, with "
        "model.gradient_checkpointing=true or learning.offload_optimizer=true, with which the run "
        "goes on by --resume too, and with model.lora_rank; sampling with a lower "
        "engine.kv_cache_tokens or engine.max_sequences; nvidia-smi shows what else is on a card"
    )


REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM)
"""Codes of a disk, or of the rights on it, which are no bug."""


def exit_code(error: BaseException) -> int:
    if isinstance(error, Stopped):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 2 if isinstance(error, UserError) else 3


PLAIN = {"«": "<<", "»": ">>", "…": "...", "–": "-", "·": "-", "→": "->", "⇄": "<->"}
"""Substitutes for characters that a terminal without Unicode cannot show; "?" for all others."""


def plainer(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an output's encoding lacks; see `codecs.register_error`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in missing), error.end


def fail(message: str, code: int) -> NoReturn:
    stderr = Console(stderr=True)
    stderr.print(f"turnwise: {message}", markup=False, highlight=False, soft_wrap=True)
    raise SystemExit(code)
