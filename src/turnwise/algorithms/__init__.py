"""The objective of an update, as pure functions: no I/O, no configuration, no engine.

An algorithm is estimator x ratio level x clip x aggregation x filter; `rows` has the table, `parts`
what a part is. Neither this package nor the modules of parts import torch.
"""

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.registry import make_algorithm, table

__all__ = ["Algorithm", "make_algorithm", "table"]
