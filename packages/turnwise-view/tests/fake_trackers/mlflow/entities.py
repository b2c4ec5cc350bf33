"""Records of mlflow 3.17, as far as they are used."""

from dataclasses import dataclass


@dataclass
class Metric:
    key: str
    value: float
    timestamp: int
    step: int


@dataclass
class Param:
    key: str
    value: str
