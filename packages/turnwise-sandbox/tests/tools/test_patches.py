"""Patches: where hunks go, files that come and go, and what is refused."""

import difflib
import random

import pytest

from turnwise.errors import ToolError
from turnwise_sandbox.tools.patches import patched

FILES = {"a.py": "one\ntwo\nthree\n", "b/c.txt": "x\ny\nx\ny\n"}


def diff(path: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(lines)


def test_difflibs_patches_of_random_files_fit() -> None:
    stream = random.Random(0)
    for _ in range(200):
        before = [stream.choice("abcd") for _ in range(stream.randint(1, 30))]
        after = list(before)
        for _ in range(stream.randint(1, 5)):
            place = stream.randrange(len(after) + 1)
            after[place : place + stream.randint(0, 2)] = stream.choices("abxy", k=2)
        old, new = ("\n".join([*lines, ""]) for lines in (before, after))
        if old != new:
            assert patched({"f": old}, diff("f", old, new)) == {"f": new}


def test_several_files_new_ones_and_deleted_ones() -> None:
    patch = (
        "diff --git a/a.py b/a.py\nindex 1..2\n--- a/a.py\n+++ b/a.py\n@@ -2 +2 @@ def f():\n"
        "-two\n+2\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,2 @@\n+first\n+second\n"
        "--- b/c.txt\n+++ /dev/null\n@@ -1,4 +0,0 @@\n-x\n-y\n-x\n-y\n"
    )
    files = {**FILES, "c.txt": FILES["b/c.txt"]}
    made = patched(files, patch)
    assert made == {"a.py": "one\n2\nthree\n", "new.py": "first\nsecond\n", "c.txt": None}


def test_the_nearest_place_is_taken_and_numbers_may_be_missing() -> None:
    first = "--- a/b/c.txt\n+++ b/b/c.txt\n@@ -{0} +{0} @@\n-x\n+z\n"
    assert patched(FILES, first.format(1))["b/c.txt"] == "z\ny\nx\ny\n"
    assert patched(FILES, first.format(4))["b/c.txt"] == "x\ny\nz\ny\n"
    bare = "--- a.py\n+++ a.py\n@@\n two\n-three\n+3\n"
    assert patched(FILES, bare) == {"a.py": "one\ntwo\n3\n"}


BAD = {
    "": "this is no patch",
    "change it": "this is no patch",
    "--- a/a.py\n": "there is no line +++",
    "--- a/a.py\n+++ b/a.py\n": "there is no hunk for a.py",
    "--- a/no.py\n+++ b/no.py\n@@ -1 +1 @@\n-a\n+b\n": "there is no file 'no.py'",
    "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+b\n": "a.py is there already",
    "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-tow\n+b\n": "hunk 1 of a.py does not fit",
    "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n+1\n@@ -3 +3 @@\n-four\n+4\n": "hunk 2 of a.py",
    "--- a/a.py\n+++ b/a.py\n@@ -1,0 +1 @@\n+b\n": "hunk 1 of a.py does not fit",
}


@pytest.mark.parametrize("patch", BAD)
def test_what_does_not_fit_is_told(patch: str) -> None:
    with pytest.raises(ToolError) as error:
        patched(FILES, patch)
    assert BAD[patch] in str(error.value)
