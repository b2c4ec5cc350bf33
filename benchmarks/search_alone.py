"""The search task without its ablations, so that a run's evaluations take half of the time."""

from collections.abc import Mapping

from turnwise.environments.base import Environment
from turnwise.environments.search.environment import SearchEnvironment


class SearchAlone(SearchEnvironment):
    """The built-in environment `search`, evaluated as it is alone."""

    def ablations(self) -> Mapping[str, Environment]:
        return {}
