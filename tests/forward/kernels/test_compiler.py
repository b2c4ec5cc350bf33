"""The cache of compiled kernels: only what was kept whole, by us, is ever loaded."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compiled import needs_kernels
from turnwise.errors import ConfigError
from turnwise.forward.kernels.compiler import library, switched_on

MACROS = ["-DHEADS=2", "-DKEY_HEADS=1", "-DSIZE=32", "-O0"]
"""Not optimised, since only the cache is looked at."""
PROGRAM = f"""
import torch
from turnwise.forward.kernels.compiler import library
found = library("decode.c", {MACROS!r})
print(found is not None and hasattr(found, "attend"))
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def build() -> None:
    """In this process, which nothing is kept in that other tests would meet."""
    found = library("decode.c", MACROS)
    assert found is not None
    assert found.attend is not None


def started(**environment: str) -> str:
    """What a process of its own says: a library that is not whole could end it."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def kept(cache: Path) -> Path:
    (file,) = cache.iterdir()
    return file


@needs_kernels
def test_the_folder_and_its_files_are_ours_alone(cache: Path) -> None:
    cache.mkdir(parents=True, mode=0o755)
    build()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept(cache).stat().st_mode) == 0o600


@needs_kernels
def test_a_kept_file_is_loaded_and_not_built_again(cache: Path) -> None:
    build()
    before = kept(cache).stat()
    build()
    assert (kept(cache).stat().st_ino, kept(cache).stat().st_mtime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
    )


@needs_kernels
@pytest.mark.parametrize(
    "damage",
    [
        "one byte",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("truncated", "empty", "another library")
        ),
    ],
)
def test_a_file_that_is_not_what_was_kept_is_built_again(
    cache: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Loaded, a truncated one ends the process with SIGBUS, another one has no such functions."""
    build()
    file = kept(cache)
    whole = file.read_bytes()
    if damage == "another library":
        assert library("training.c", MACROS) is not None
        other = next(one for one in cache.iterdir() if one.name.startswith("training"))
        other.replace(file)
    else:
        flipped = whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:]
        changed = {"truncated": whole[: len(whole) // 2], "empty": b"", "one byte": flipped}
        file.unlink()  # this process has the old one loaded
        file.write_bytes(changed[damage])
        file.chmod(0o600)
    assert started() == "True"
    assert kept(cache).read_bytes().startswith(b"\x7fELF")
    build()
    assert "is built again" not in caplog.text


@needs_kernels
def test_a_damaged_file_is_told_of_and_replaced(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build()
    name = kept(cache).name
    kept(cache).unlink()
    (cache / name).write_bytes(b"nothing")
    (cache / name).chmod(0o600)
    build()
    assert "is not what was kept there: it is built again" in caplog.text
    assert kept(cache).stat().st_size > 1000


@needs_kernels
def test_a_file_that_others_can_write_is_not_loaded(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build()
    kept(cache).chmod(0o622)
    build()
    assert "is built again" in caplog.text
    assert stat.S_IMODE(kept(cache).stat().st_mode) == 0o600


@needs_kernels
def test_a_link_in_place_of_a_file_is_not_followed(cache: Path, tmp_path: Path) -> None:
    build()
    file = kept(cache)
    elsewhere = tmp_path / "elsewhere.so"
    file.replace(elsewhere)
    file.symlink_to(elsewhere)
    build()
    assert not kept(cache).is_symlink()


@needs_kernels
def test_a_folder_behind_a_link_is_refused(
    cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "theirs").mkdir()
    cache.parent.mkdir()
    cache.symlink_to(tmp_path / "theirs")
    build()
    assert "is a link or somebody else's" in caplog.text
    assert not list((tmp_path / "theirs").iterdir())


@needs_kernels
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build()
    os.chown(cache, 12345, 12345)
    before = list(cache.iterdir())
    build()
    assert "is a link or somebody else's" in caplog.text
    assert list(cache.iterdir()) == before


@needs_kernels
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_loaded(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build()
    os.chown(kept(cache), 12345, 12345)
    build()
    assert "is built again" in caplog.text
    assert kept(cache).stat().st_uid == os.geteuid()


@pytest.mark.long
@needs_kernels
def test_two_processes_at_once(cache: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=300)[0].strip() for process in running] == ["True"] * 2
    assert all(file.suffix == ".so" for file in cache.iterdir())
    build()


@needs_kernels
def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "file" / "cache"))
    build()


@pytest.mark.parametrize(("word", "on"), [(None, True), ("auto", True), ("off", False)])
def test_the_switch(word: str | None, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNWISE_KERNELS", raising=False)
    if word is not None:
        monkeypatch.setenv("TURNWISE_KERNELS", word)
    assert switched_on() is on


def test_switched_off_there_are_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_KERNELS", "off")
    assert library("decode.c", MACROS) is None
    assert not cache.exists()


def test_another_word_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_KERNELS", "0")
    with pytest.raises(ConfigError, match="TURNWISE_KERNELS is '0': set it to off"):
        library("decode.c", MACROS)
