"""The recipe of a file's tests: its `TABLES`, on an environment of `fakes.py`."""

from pathlib import Path

import pytest

from tests.small_runs import write_recipe


@pytest.fixture(scope="module")
def recipe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On Letters where the file names no other `ENVIRONMENT`."""
    environment = getattr(request.module, "ENVIRONMENT", "Letters")
    return write_recipe(tmp_path_factory.mktemp("recipe"), environment, request.module.TABLES)
