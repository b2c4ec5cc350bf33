"""What an update maximises, as pure functions: no I/O, no configuration, no engine.

An algorithm is estimator x ratio level x clip x aggregation x filter; `registry` has the table.
This package imports no torch; `losses` and `kl` do, so import those from where they live.
"""

from turnwise.algorithms.registry import Algorithm, make_algorithm, table

__all__ = ["Algorithm", "make_algorithm", "table"]
