"""The seccomp filter, run by a second interpreter of its instructions, on both architectures."""

import errno
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_sandbox import seccomp

ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def run(program: bytes, number: int, architecture: int, *arguments: int) -> int:
    """What the kernel does with one call, after linux/filter.h and linux/seccomp.h."""
    given = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *given)
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator, position = 0, 0
    while True:
        code, if_true, if_false, value = instructions[position]
        position += 1
        if code == 0x06:
            return value
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x54:
            accumulator &= value
        else:
            holds = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            position += if_true if holds else if_false


Numbers = int | tuple[int | None, int | None]
Call = Callable[..., int]


@pytest.fixture(scope="module", params=MACHINES)
def call(request: pytest.FixtureRequest) -> Call:
    """Answers a call, by its number or by its row of the tables, with these arguments."""
    column, architecture = MACHINES[request.param]
    program = seccomp.filter_program(request.param)

    def answer(numbers: Numbers, *arguments: int) -> int | None:
        number = numbers[column] if isinstance(numbers, tuple) else numbers
        return None if number is None else run(program, number, architecture, *arguments)

    return answer


def test_what_is_denied_and_that_all_else_is_allowed(call: Call) -> None:
    assert {call(numbers) for numbers in seccomp.DENIED.values()} <= {EPERM, None}
    assert call(seccomp.CLONE3) == ENOSYS
    answers = [call(number) for number in range(501)]
    denied = sum(call(numbers) is not None for numbers in seccomp.DENIED.values())
    # Without arguments a socket has no family, and CLONE3 another answer.
    assert [answers.count(one) for one in (EPERM, ENOSYS)] == [denied + 1, 1]
    assert answers.count(ALLOW) == 501 - denied - 2


def test_limits_are_set_for_the_caller_only(call: Call) -> None:
    for numbers, zeros in seccomp.OF_ITSELF.values():
        assert call(numbers) == ALLOW
        for position in zeros:
            other = [4711 if one == position else 0 for one in range(6)]
            assert call(numbers, *other) == EPERM


@given(flags=st.integers(0, 2**32 - 1))
def test_memory_is_not_shared_without_a_file(call: Call, flags: int) -> None:
    """The flags of mmap are its fourth argument; its type is in the lowest four bits."""
    for given_flags in (flags, flags & ~0x2F | 0x21):
        shared = given_flags & 0x0F == 0x01 and bool(given_flags & 0x20)
        answer = call(seccomp.MMAP, 0, 4096, 3, given_flags)
        assert answer == (EPERM if shared else ALLOW)


def test_buffers_of_sockets_stay_as_they_are(call: Call) -> None:
    """The call has no effect and no error: programs that set a size go on."""
    for level, option in ((1, 7), (1, 8), (6, 7)):
        answer = call(seccomp.SETSOCKOPT, 3, level, option)
        assert answer == (0x50000 if (level, option) == (1, 7) else ALLOW)


@given(flags=st.integers(0, 2**32 - 1))
def test_clone_makes_no_namespaces(call: Call, flags: int) -> None:
    new = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
    answer = call(seccomp.CLONE, flags)
    assert answer == (EPERM if any(flags & one for one in new) else ALLOW)


def test_socket_families(call: Call) -> None:
    assert [one for one in range(64) if call(seccomp.SOCKET, one) == ALLOW] == [1, 2, 10]


def test_other_interfaces_of_the_kernel() -> None:
    program = seccomp.filter_program("x86_64")
    assert run(program, 0, 0x40000003) == EPERM  # 32-bit
    assert run(program, 0x40000000 + 1, 0xC000003E) == EPERM  # x32


@pytest.mark.parametrize(
    ("column", "header"),
    [
        (0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        (1, "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_numbers_are_those_of_the_kernel_headers(column: int, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"there is no {header}")
    known = {}
    for line in Path(header).read_text().splitlines():
        parts = line.split()
        if line.startswith("#define __NR") and parts[2].isdigit():
            known[parts[1].removeprefix("__NR_").removeprefix("__NR3264_")] = int(parts[2])
    table = seccomp.DENIED | {
        "clone": seccomp.CLONE,
        "clone3": seccomp.CLONE3,
        "socket": seccomp.SOCKET,
    }
    table |= {name: numbers for name, (numbers, _) in seccomp.OF_ITSELF.items()}
    for name, numbers in table.items():
        if name in known:
            assert numbers[column] == known[name], name
    assert len(known.keys() & table.keys()) > 30


def test_unknown_machine() -> None:
    with pytest.raises(OSError, match="m68k"):
        seccomp.filter_program("m68k")
