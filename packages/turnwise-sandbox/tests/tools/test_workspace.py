"""The workspace: shell calls over files that stay, file tools, limits, snapshots."""

import dataclasses
import resource
import struct

import pytest

from turnwise.errors import ToolError
from turnwise.tools.tool import tools_of
from turnwise_sandbox import folder
from turnwise_sandbox.sandbox import Sandbox
from turnwise_sandbox.tools.workspace import UNCHANGED, Entry, Workspace, WorkspaceTools, taken

FILES = {"main.py": "print('hi')\n", "data/a.txt": "1\n2\n3\n"}


def test_files_stay_and_nothing_else(sandbox: Sandbox) -> None:
    workspace = Workspace(sandbox, FILES)
    assert workspace.shell("ls; cat data/a.txt; X=1; cd data") == "data\nmain.py\n1\n2\n3"
    made = "mkdir -p e/f && echo out > new.txt && ln -s new.txt link && chmod +x main.py; exit 3"
    assert workspace.shell(made) == "[exit status 3]"
    assert workspace.shell('cat link; test -x main.py && test -d e/f && echo "yes$X"') == "out\nyes"
    assert workspace.files["new.txt"] == b"out\n"
    assert workspace.entries["link"] == Entry("link", b"new.txt", 0o777)
    state = workspace.snapshot()
    other = Workspace(sandbox)
    other.restore(state)
    assert (other.snapshot(), other.packed()) == (state, workspace.packed())
    assert workspace.shell("rm -r data link; ls") == other.shell("rm -r data link; ls")
    assert workspace.snapshot() == other.snapshot() != state


@pytest.mark.long
def test_a_call_beyond_a_limit_leaves_the_files_as_they_were(sandbox: Sandbox) -> None:
    workspace = Workspace(sandbox, FILES)
    before = workspace.snapshot()
    told = workspace.shell("echo started; rm -r data; sleep 60")
    assert told == f"started\n[stopped after 2 s]\n[{UNCHANGED}]"
    assert workspace.snapshot() == before
    assert UNCHANGED in workspace.shell("rm main.py; kill -9 $PPID")
    assert UNCHANGED in workspace.shell(f"rm -r data; mkdir ../{folder.PACKED}")
    assert workspace.snapshot() == before


def test_what_is_not_packed_is_refused_and_paths_stay_inside() -> None:
    with pytest.raises(ValueError, match="damaged"):
        taken(b"no archive" * 200, 100)
    entries = [
        (path, "f", 0o644, b"x")
        for path in ("../out", "/etc/passwd", "a/../../b", "good", "name\0with")
    ]
    packed = b"".join(folder.pack(entries))
    assert list(taken(packed, 100)) == ["good"]
    with pytest.raises(ValueError, match="more than 4"):
        taken(packed, 4)
    with pytest.raises(ValueError, match="damaged"):
        taken(packed[:-1], 100)


def test_nothing_is_read_that_is_not_there() -> None:
    """An entry names gigabytes that it does not have: nothing of that size is ever made."""
    header = struct.pack(">cHII", b"f", 0o644, 1, 1 << 31) + b"a"
    with pytest.raises(ValueError, match="damaged"):
        taken(header + b"x", 100)
    with pytest.raises(ValueError, match="more than 16 MiB"):
        taken(b"".join(folder.pack([("a", "f", 0o644, bytes(17 << 20))])), 100)


SWAP = """
cat > swap.py <<'END'
import os, sys, tarfile, time
info = tarfile.TarInfo("big")
info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
                    "GNU.sparse.name": "big", "GNU.sparse.realsize": str(1 << 30)}
with tarfile.open("other.tar", "w", format=tarfile.PAX_FORMAT) as archive:
    archive.addfile(info)
print("ready", flush=True)
while True:
    if os.path.exists("../PACKED"):
        os.replace("other.tar", "../PACKED")
        break
END
setsid python3 swap.py > said & while ! [ -s said ]; do sleep 0.01; done; echo mine > kept.txt
"""


def test_a_swapped_archive_takes_no_memory(sandbox: Sandbox) -> None:
    """Something that goes on beside the collection puts a sparse archive in its place."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    workspace = Workspace(
        sandbox, FILES, limits=dataclasses.replace(sandbox.settings.limits, seconds=60)
    )
    workspace.shell(SWAP.replace("PACKED", folder.PACKED))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB
    assert workspace.files["main.py"] == FILES["main.py"].encode()
    assert workspace.shell("echo on") == "on"


def test_files_and_folders_without_rights_are_taken_back(sandbox: Sandbox) -> None:
    workspace = Workspace(sandbox, FILES)
    assert workspace.shell("chmod 0 main.py; chmod 444 data") == "(no output)"
    assert workspace.entries["main.py"] == Entry("file", b"print('hi')\n", 0)
    assert workspace.entries["data"] == Entry("folder", b"", 0o444)
    assert workspace.files["data/a.txt"] == b"1\n2\n3\n"
    assert workspace.shell("stat -c %a main.py data; chmod 755 data; cat data/a.txt") == (
        "0\n444\n1\n2\n3"
    )


@pytest.mark.long
def test_folders_nested_without_end(sandbox: Sandbox) -> None:
    workspace = Workspace(sandbox, FILES)
    before = workspace.snapshot()
    program = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    told = workspace.shell(f'python3 -c "{program}"')
    assert UNCHANGED in told
    assert workspace.snapshot() == before


@pytest.fixture
def workspace() -> Workspace:
    return Workspace(Sandbox(), FILES)  # no sandbox is started where no shell is called


def test_reading_and_writing(workspace: Workspace) -> None:
    assert workspace.read("main.py") == "print('hi')\n"
    assert workspace.read("data/a.txt", 2, 1) == "2\n[2 more lines: read from line 3 on]"
    assert workspace.write("src/new.py", "x = 1\n") == "written"
    assert workspace.files["src/new.py"] == b"x = 1\n"
    patch = "--- a/main.py\n+++ b/main.py\n@@ -1 +1 @@\n-print('hi')\n+print('ho')\n"
    assert workspace.edit(patch) == "changed: main.py"
    assert workspace.files["main.py"] == b"print('ho')\n"
    assert workspace.delete("data") == "deleted"
    assert sorted(workspace.files) == ["main.py", "src/new.py"]
    gone = "--- a/main.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-print('ho')\n"
    assert workspace.edit(made("main.py/a") + gone) == "changed: main.py, main.py/a"
    assert sorted(workspace.files) == ["main.py/a", "src/new.py"]
    undone = "--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    assert workspace.edit(made("b") + undone) == "changed: b"
    assert sorted(workspace.files) == ["main.py/a", "src/new.py"]


def made(path: str, content: str = "x") -> str:
    return f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{content}\n"


def test_what_cannot_be_done_is_told(workspace: Workspace) -> None:
    workspace.entries["raw"] = Entry(content=b"a\0b")
    workspace.entries["link"] = Entry("link", b"/etc/passwd")
    before = workspace.snapshot()
    attempts = {
        "there is no file 'no.py'; files: data/a.txt, main.py": lambda: workspace.read("no.py"),
        "raw is no text: 3 bytes": lambda: workspace.read("raw"),
        "link is a link": lambda: workspace.read("link"),
        "main.py has 2 lines only": lambda: workspace.read("main.py", 9),
        "first and lines are 1 or more": lambda: workspace.read("main.py", 0),
        "give a path below the folder": lambda: workspace.write("../x", ""),
        "'/etc/x': give a path": lambda: workspace.write("/etc/x", ""),
        "main.py is a file, not a folder": lambda: workspace.write("main.py/x", ""),
        "data is a folder": lambda: workspace.write("data", ""),
        "would be more than 16 MiB": lambda: workspace.write("big", "x" * (17 << 20)),
        "there is no file 'data/b'": lambda: workspace.delete("data/b"),
        "this is no patch": lambda: workspace.edit("x"),
        "link is a link, not a folder": lambda: workspace.write("link/x", ""),
        "a is a file, not a folder": lambda: workspace.edit(made("a") + made("a/b")),
        "more than 16 MiB together": lambda: workspace.edit(
            made("a") + made("b", "x" * (17 << 20))
        ),
        "the command is empty": lambda: workspace.shell(" "),
    }
    for message, attempt in attempts.items():
        with pytest.raises(ToolError) as error:
            attempt()
        assert message in str(error.value)
    assert workspace.snapshot() == before
    with pytest.raises(ValueError, match="plain relative path"):
        Workspace(Sandbox(), {"../x": ""})


def test_tools_that_change_something_are_marked() -> None:
    marks = {name: tool.consequence for name, tool in tools_of(WorkspaceTools()).items()}
    assert marks == {
        "delete_file": "delete",
        "edit_file": "write",
        "read_file": "",
        "shell": "write",
        "write_file": "write",
    }
