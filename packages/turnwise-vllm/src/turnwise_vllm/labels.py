"""Versions of the policy by the labels that servers say of each token."""

import uuid
from collections.abc import Sequence

from turnwise.errors import InfrastructureError


class WrongWeightsError(InfrastructureError):
    """The server sampled with other weights than it was given last."""


class Labels:
    """The labels that servers were given, oldest first.

    Example: `labels.add("000003-version-2", 2)`, then `labels.versions(answer.labels, since, url)`.
    """

    def __init__(self) -> None:
        self._run = uuid.uuid4().hex[:8]
        self._places: dict[str, int] = {}
        self._versions: list[int] = []

    def add(self, name: str, version: int) -> str:
        """A new label for weights of a version; `name` is another one each time."""
        label = f"{self._run}-{name}"
        self._places[label] = len(self._versions)
        self._versions.append(version)
        return label

    @property
    def newest(self) -> int:
        """The place of the newest label."""
        return len(self._versions) - 1

    def versions(self, labels: Sequence[str], since: int, url: str) -> list[int]:
        """The version of each token of an answer, which was asked for when the server at `url` had
        the weights at the place `since`.

        Raises WrongWeightsError for weights that it was not given, or older ones than it had.
        """
        places = []
        for label in labels:
            place = self._places.get(label)
            if place is None:
                raise WrongWeightsError(
                    f"vLLM at {url} sampled with the weights {label!r}, which it was not given: it "
                    "was started again, or given others"
                )
            if place < since:
                raise WrongWeightsError(
                    f"vLLM at {url} sampled with weights of version {self._versions[place]} after "
                    f"those of version {self._versions[since]}"
                )
            since = place
            places.append(place)
        return [self._versions[place] for place in places]
