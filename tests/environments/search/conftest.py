"""The built-in search environment, loaded once."""

import pytest

from turnwise.environments.search.environment import SearchEnvironment


@pytest.fixture(scope="session")
def library() -> SearchEnvironment:
    return SearchEnvironment()
