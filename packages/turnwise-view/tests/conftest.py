"""A run of the dashboard's tests, written once."""

import shutil
from pathlib import Path

import pytest

from dashboard_sample_run import write_run


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "demo", hostile=False)


@pytest.fixture
def run(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(written, tmp_path / "demo"))
