"""Tools that a recipe adds to an environment: called, ruled over, and refused where they clash."""

import asyncio
from pathlib import Path

import pytest

from tests.fakes import Capitals
from turnwise.environments.derived import equipped
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError
from turnwise.types import Action, ToolCall

MINE = '''
from turnwise import ToolError, tool
from turnwise.tools.tool import consequential

@tool
def convert(miles: float) -> str:
    """Convert miles to kilometres."""
    if miles < 0:
        raise ToolError("a distance is 0 or more")
    return f"{1.609344 * miles:.1f}"

@tool
@consequential("send")
async def send(text: str) -> str:
    """Send a text."""
    return "sent"

@tool
def lookup(country: str) -> str:
    """Look a country up."""
    return ""

def plain(text: str) -> str:
    """No tool."""
    return text
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return file


def called(environment: Capitals, name: str, **arguments: object) -> str:
    step = asyncio.run(environment.fresh().step(Action("", calls=(ToolCall(name, arguments),))))
    return step.observation.content


def test_they_stand_beside_the_environments_own(mine: Path) -> None:
    environment = equipped(Capitals(), [f"{mine}:convert", f"{mine}:send"])
    assert [tool.name for tool in environment.tools()] == ["convert", "lookup", "send"]
    assert called(environment, "convert", miles=10) == "16.1"
    assert called(environment, "convert", miles=-1) == "Error: a distance is 0 or more"
    assert called(environment, "send", text="x") == "sent"
    assert called(environment, "lookup", country="France") == "The capital is Paris."
    assert environment.spec == Capitals().spec
    assert equipped(environment, []) is environment


def test_rules_hold_for_them_too(mine: Path) -> None:
    name = f"{Path(__file__).parents[1] / 'fakes.py'}:Capitals"
    made = make_environment(name, {}, {"send": "refuse"}, tools=[f"{mine}:send"])
    assert called(made, "send", text="x") == "Error: send is not permitted here"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{mine}:lookup", "is called 'lookup', as another tool of capitals: give the function"),
        ("{mine}:plain", "not a tool: mark the function with @tool"),
        ("{mine}:gone", "unknown name 'gone'"),
        pytest.param(
            "calculte",
            "unknown tool 'calculte': did you mean 'calculate'",
            marks=pytest.mark.wing("environments"),
        ),
    ],
)
def test_mistakes_are_a_line(mine: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        equipped(Capitals(), [name.format(mine=mine)])


@pytest.mark.wing("environments")
def test_ablations_have_them(mine: Path) -> None:
    made = make_environment("mathematics", {"tasks": {"count": 4}}, tools=[f"{mine}:convert"])
    for variant in made.ablations().values():
        assert "convert" in [tool.name for tool in variant.tools()]
