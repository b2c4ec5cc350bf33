"""Which sandbox a recipe's table gets: one's own, or a line that says what to install."""

import pytest

from tests import sandboxes
from turnwise.errors import ConfigError, MissingExtraError
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.settings import Limits
from turnwise.wings import Wings, wings

OWN = f"{sandboxes.__file__}:Empty"


def test_a_sandbox_of_ones_own() -> None:
    sandbox = make_sandbox({"kind": OWN, "limits": {"seconds": 2.0}}, Limits(memory=1 << 30))
    assert sandbox.settings.limits == Limits(seconds=2.0, memory=1 << 30)
    assert sandbox.run_python("print(1)").tier == "empty"


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"kind": "podman"}, "unknown sandbox 'podman'"),
        ({"kind": f"{sandboxes.__file__}:working"}, "derive the class from CodeSandbox"),
        ({"kind": OWN, "image": "a"}, "image is of kind docker"),
        ({"tier": "namespaces"}, "sandbox.tier is 'namespaces': give one of"),
        ({"limits": {"second": 3}}, "'sandbox.limits.second'.*'sandbox.limits.seconds'"),
    ],
)
def test_mistakes(table: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_sandbox(table)


@pytest.mark.parametrize("kind", ["local", "docker", "sandbox_fusion"])
def test_where_none_is_installed_a_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    there = wings()
    left = {name: wing for name, wing in there.usable.items() if name != "sandbox"}
    for module in ("turnwise.registry", "turnwise.wings"):
        monkeypatch.setattr(f"{module}.wings", lambda: Wings(left, there.problems))
    with pytest.raises(MissingExtraError, match=r"pip install 'turnwise\[sandbox\]'"):
        make_sandbox({"kind": kind})
