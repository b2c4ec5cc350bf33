"""From a recipe's table to a sandbox: each kind, and each mistake in one line."""

from typing import Any

import pytest

from turnwise.errors import ConfigError
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.settings import Limits, SandboxSettings
from turnwise_sandbox.sandbox import Sandbox
from turnwise_sandbox.sandbox_fusion import SandboxFusion


def test_nothing_said_is_the_local_one() -> None:
    sandbox = make_sandbox({}, Limits(seconds=3.0))
    assert isinstance(sandbox, Sandbox)
    assert sandbox.settings == SandboxSettings(limits=Limits(seconds=3.0))


def test_each_kind() -> None:
    docker = make_sandbox({"kind": "docker", "image": "mine", "warm": 4})
    assert isinstance(docker, Sandbox)
    assert (docker.settings.image, docker.settings.warm) == ("mine", 4)
    assert isinstance(make_sandbox({"kind": "sandbox_fusion", "url": "http://a"}), SandboxFusion)
    local = make_sandbox({"tier": "unisolated", "packages": ["/a"]})
    assert local.settings.packages == ("/a",)


def test_limits_change_only_what_they_name() -> None:
    table = {"limits": {"memory": 1 << 30}}
    assert make_sandbox(table, Limits(seconds=3.0)).settings.limits == Limits(
        seconds=3.0, memory=1 << 30
    )


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"kin": "docker"}, "unknown key 'sandbox.kin'.*'sandbox.kind'"),
        ({"kind": "podman"}, "unknown sandbox 'podman'"),
        ({"warm": "many"}, "sandbox.warm is 'many': give a whole number"),
        ({"limits": 3}, "sandbox.limits is a table"),
        ({"limits": {"second": 3}}, "'sandbox.limits.second'.*'sandbox.limits.seconds'"),
        ({"limits": {"seconds": -1}}, "seconds = -1"),
        ({"tier": "namespaces"}, "sandbox.tier is 'namespaces': give one of"),
        ({"allow_unisolated": True}, "unknown key 'sandbox.allow_unisolated'"),
        ({"kind": "docker", "tier": "bubblewrap"}, "tier is of kind local, and kind is docker"),
        ({"image": "a"}, "image is of kind docker, and kind is local"),
        ({"url": "http://a"}, "url is of kind sandbox_fusion"),
        ({"kind": "sandbox_fusion"}, "url ''"),
        ({"kind": "sandbox_fusion", "url": "http://a", "answer_seconds": 0}, "answer_seconds"),
        ({"kind": "sandbox_fusion", "url": "http://a", "python": "/a"}, "python is of kind"),
    ],
)
def test_mistakes(table: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_sandbox(table)


def test_a_sandbox_of_this_machine_is_no_service() -> None:
    with pytest.raises(ConfigError, match="make_sandbox"):
        Sandbox(SandboxSettings(kind="sandbox_fusion", url="http://a"))
