"""The checkpoints that come with the package, by name. Loads no model library; see tiny.py."""

from importlib import resources
from pathlib import Path

TINY = ("tiny", "tiny_search", "tiny_demo")


def tiny_folder(name: str = "tiny") -> Path:
    """The folder of a checkpoint that comes with the package."""
    return Path(str(resources.files("turnwise.models"))) / name
