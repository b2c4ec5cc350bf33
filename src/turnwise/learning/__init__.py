"""From graded trajectories to new weights: batches, log-probabilities, updates, checkpoints.

Knows nothing of engines and rollouts; they meet in the trainer, through `turnwise.types`.
"""
