"""How a model is computed, for engines and learning alike: caches, passes, log-probabilities.

Every way to compute a model faster than its own forward pass is relied on only where it is seen to
give the same numbers.
"""
