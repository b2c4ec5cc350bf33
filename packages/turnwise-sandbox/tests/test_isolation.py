"""What code can see and reach of the machine, in the tiers that isolate: as good as nothing."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwise.sandbox.result import Result, Status
from turnwise_sandbox import launch, seccomp
from turnwise_sandbox.sandbox import Sandbox


def said(result: Result) -> object:
    assert result.status is Status.OK, result.stderr.text
    return json.loads(result.stdout.text)


def tried(sandbox: Sandbox, *expressions: str, setup: str = "") -> list[str]:
    """What each expression raised, by the name of the error number or of the class."""
    source = f"""
import ctypes, errno, json, os, signal, socket, subprocess, sys
{setup}
outcomes = []
for expression in {list(expressions)!r}:
    try:
        eval(expression)
        outcomes.append("done")
    except OSError as error:
        outcomes.append(errno.errorcode.get(error.errno, repr(error)))
print(json.dumps(outcomes))
"""
    return said(sandbox.run_python(source))


def test_files_of_the_machine(isolated: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    places = [
        str(secret),
        __file__,
        "/etc/shadow",
        "/etc/hostname",
        "/home",
        "/var",
        "/sys",
        "/run",
    ]
    outcomes = tried(isolated, *(f"os.stat({place!r})" for place in places))
    assert outcomes == ["ENOENT"] * len(places)
    assert said(isolated.run_python("import os, json; print(json.dumps(os.listdir('/tmp')))")) == []


def test_the_system_cannot_be_written(isolated: Sandbox) -> None:
    prefix = str(Path(os.__file__).parent)
    places = ["/x", "/usr/x", "/etc/x", "/dev/x", f"{prefix}/x.py", "/usr/bin/env"]
    outcomes = tried(isolated, *(f"open({place!r}, 'a')" for place in places))
    assert set(outcomes) <= {"EROFS", "EACCES"}
    assert not os.path.exists("/usr/x")


def test_scratch_is_writable_and_gone_after(isolated: Sandbox) -> None:
    places = ["/work/mark", "/tmp/mark", "/dev/shm/mark"]
    assert tried(isolated, *(f"open({place!r}, 'x')" for place in places)) == ["done"] * 3
    assert tried(isolated, *(f"open({place!r}, 'x')" for place in places)) == ["done"] * 3
    assert not os.path.exists("/dev/shm/mark")


def test_network(isolated: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcomes = tried(
            isolated,
            "socket.create_connection(('1.1.1.1', 53), 1)",
            f"socket.create_connection(('127.0.0.1', {port}), 1)",
            "socket.create_connection(('169.254.169.254', 80), 1)",
            "socket.getaddrinfo('example.org', 80)",
        )
    assert set(outcomes[:3]) <= {"ENETUNREACH", "ECONNREFUSED"}
    assert outcomes[3] != "done"


def test_sockets_past_the_network_namespace(isolated: Sandbox) -> None:
    name = f"turnwise-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        outcomes = tried(
            isolated,
            f"socket.socket(socket.AF_UNIX).connect('\\0{name}')",
            "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
            "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
            "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
            "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        )
    assert outcomes == ["ECONNREFUSED", "EPERM", "EPERM", "EPERM", "EPERM"]


def test_processes(isolated: Sandbox) -> None:
    source = """
import json, os
seen = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
print(json.dumps([seen, os.getpid()]))
"""
    seen, own = said(isolated.run_python(source))
    assert seen == [1, own]
    assert tried(isolated, f"os.kill({os.getpid()}, 0)") == ["ESRCH"]


def test_ways_through_proc(isolated: Sandbox) -> None:
    """What /proc says of the machine and its processes, and what it would let a process change."""
    away = [
        "open('/proc/1/environ').read()",
        "open('/proc/1/mem', 'rb')",
        "os.listdir('/proc/1/fd')",
        "os.stat('/proc/1/root/root')",
        "open('/proc/sys/kernel/hostname', 'w')",
        "open('/proc/kcore', 'rb')",
        "open('/proc/sys/kernel/core_pattern', 'w')",
        "open('/proc/sys/vm/drop_caches', 'w')",
        "open('/proc/sysrq-trigger', 'w')",
        "os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000')",
        "os.write(os.open('/proc/self/uid_map', os.O_WRONLY), b'0 0 1')",
        "open('/proc/self/root/etc/shadow')",
        "open('/proc/self/cwd/../etc/shadow')",
        "open('/proc/self/cwd/../../../../etc/shadow')",
        "libc('setns', os.open('/proc/self/ns/net', os.O_RDONLY), 0)",
        "libc('mount', b'proc', b'/tmp', b'proc', 0, 0)",
    ]
    outcomes = tried(isolated, *away, setup=LIBC)
    refused = ("EACCES", "EPERM", "ENOENT", "EROFS")
    assert [pair for pair in zip(away, outcomes, strict=True) if pair[1] not in refused] == []
    score = isolated.run_python("print(open('/proc/self/oom_score_adj').read().strip())")
    assert score.stdout.text == "1000\n"


LIBC = """
def libc(name, *arguments):
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "")
"""


def test_ways_out_by_links_and_paths(isolated: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    up = "../" * 30
    setup = f"""
os.symlink({str(secret)!r}, "link"); os.symlink("/", "root"); os.symlink("loop", "loop")
os.symlink({up!r}, "up"); os.mkdir("a"); os.symlink("/proc/1/root", "other")
"""
    tries = {
        "open('link')": {"ENOENT"},
        f"open('root{secret}')": {"ENOENT"},
        f"open('up{secret}')": {"ENOENT"},
        f"open({up + str(secret)!r})": {"ENOENT"},
        f"open('other{secret}')": {"EACCES", "ENOENT"},
        "open('loop')": {"ELOOP"},
        "os.link('/usr/bin/env', 'own')": {"EXDEV", "EPERM", "EROFS"},
        "os.rename('/work', '/tmp/moved')": {"EBUSY", "EROFS", "EACCES", "EXDEV"},
        "os.rename('a', '/usr/a')": {"EXDEV", "EROFS", "EACCES"},
        "os.rmdir('/tmp')": {"EBUSY", "EROFS", "EACCES"},
        "os.mknod('device', 0o20666, os.makedev(1, 1))": {"EPERM"},
        "os.chroot('/work')": {"EPERM"},
        "os.setuid(0)": {"EPERM", "EINVAL"},
        "os.chown('a', 0, 0)": {"EPERM", "EINVAL"},
    }
    outcomes = tried(isolated, *tries, setup=setup)
    found = [(*one, outcome) for one, outcome in zip(tries.items(), outcomes, strict=True)]
    assert [one for one in found if one[2] not in one[1]] == []
    assert secret.read_text() == "secret"


def test_set_user_id_programs_gain_nothing(isolated: Sandbox) -> None:
    command = "cp /usr/bin/id i && chmod 6755 i && ./i -u && ./i -G"
    result = isolated.run(["sh", "-c", command])
    users = set(result.stdout.text.split())
    assert result.status is Status.OK, result.stderr.text
    assert users
    assert "0" not in users
    result = isolated.run(["sh", "-c", "unshare -Ur true || mount -t tmpfs x /tmp || su -c id"])
    assert result.status is Status.NONZERO
    assert "uid=0(root)" not in result.stdout.text


def test_environment_is_the_declared_one(
    isolated: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    result = isolated.run(["env"], environment={"GIVEN": "yes"})
    seen = dict(line.split("=", 1) for line in result.stdout.text.splitlines())
    declared = launch.environment(isolated._launch.interpreter) | {"GIVEN": "yes"}
    assert {name: value for name, value in seen.items() if name != "PWD"} == declared


def test_descriptors(isolated: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "held").write_text("x")
    descriptor = os.open(tmp_path / "held", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    listing = "import os, json; print(json.dumps(sorted(map(int, os.listdir('/proc/self/fd')))))"
    try:
        assert said(isolated.run_python(listing)) == [0, 1, 2, 3]  # 3 is the folder being listed
    finally:
        os.close(descriptor)


def test_rights(isolated: Sandbox) -> None:
    source = """
import json, os
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
wanted = ("CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp")
print(json.dumps([lines[name].strip() for name in wanted]))
"""
    assert said(isolated.run_python(source)) == ["0" * 16] * 3 + ["1", "2"]


def test_denied_system_calls(isolated: Sandbox) -> None:
    """Each call of the table, with arguments of zero: no right, whatever else is wrong."""
    column = seccomp.ARCHITECTURES[os.uname().machine][0]
    numbers = [one[column] for one in seccomp.DENIED.values() if one[column] is not None]
    setup = """
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "")
"""
    clones = [
        f"call({seccomp.CLONE[column]}, {flag}, 0, 0, 0, 0)" for flag in (0x10000000, 0x20000)
    ]
    outcomes = tried(
        isolated,
        *(f"call({number}, 0, 0, 0, 0, 0, 0)" for number in numbers),
        *clones,
        f"call({seccomp.CLONE3[column]}, 0, 0)",
        "os.memfd_create('x')",
        setup=setup,
    )
    assert outcomes == ["EPERM"] * (len(numbers) + 2) + ["ENOSYS", "EPERM"]


def test_runs_at_the_same_time_do_not_see_each_other(
    isolated: Sandbox, maker: Callable[..., Sandbox]
) -> None:
    with isolated.session() as left, isolated.session() as right:
        left.run("open('mark', 'w'); import socket; s = socket.socket(socket.AF_UNIX)")
        left.run("s.bind('\\0here'); s.listen()")
        assert right.run("import os; print(os.listdir('.'))").stdout.text == "[]\n"
        other = right.run("import socket; socket.socket(socket.AF_UNIX).connect('\\0here')")
        assert other.error == "ConnectionRefusedError"
        seen = right.run("print(len([n for n in os.listdir('/proc') if n.isdigit()]))")
        assert seen.stdout.text == "2\n"
