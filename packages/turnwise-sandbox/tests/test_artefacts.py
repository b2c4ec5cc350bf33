"""Which files may be passed on: the allow-list, names that run by themselves, sizes, links."""

from pathlib import Path

import pytest

from turnwise_sandbox import artefacts


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a.py", "a.py", True),
        ("a.py", "*.py", True),
        ("src/a.py", "*.py", False),
        ("src/a.py", "src/*.py", True),
        ("src/b/a.py", "src/*.py", False),
        ("src/b/a.py", "src/**", True),
        ("src", "src/**", False),
        ("srcs/a", "src/**", False),
        ("x/y", "**", True),
        ("a.pyc", "*.py", False),
    ],
)
def test_patterns(path: str, pattern: str, expected: bool) -> None:
    assert artefacts.matches(path, [pattern]) is expected


@pytest.mark.parametrize(
    "path",
    [
        *["/a", "../a", "a/../b", "a//b", "", ".", "a\nb", "a\x00b", "\ud800", "a\\b", "x" * 600],
        *["conftest.py", "deep/conftest.py", "pytest.ini", "setup.cfg", "pyproject.toml"],
        *["tox.ini", "sitecustomize.py", "usercustomize.py", "a.pth", "a.pyc", "__pycache__/a.py"],
        *[".git/config", "sub/.git/hooks/pre-commit", ".git"],
    ],
)
def test_refused_names(path: str) -> None:
    assert artefacts.refusal(path)


@pytest.mark.parametrize("path", ["a.py", "src/test_a.py", "grüße.txt", ".gitignore", "a b"])
def test_good_names(path: str) -> None:
    assert not artefacts.refusal(path)


def test_gather_stops_at_bytes_and_files(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).write_bytes(b"x" * 10)
    taken, refused = artefacts.gather(str(tmp_path), ["*"], 25, 100)
    assert (set(taken), refused) == ({"a", "b"}, {"c": "too large", "d": "too large"})
    taken, refused = artefacts.gather(str(tmp_path), ["*"], 100, 3)
    assert (set(taken), refused) == ({"a", "b", "c"}, {})


def test_write_files_stays_inside(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plain"):
        artefacts.write_files(str(tmp_path), {"../x": b""})
