"""Learning new weights from graded trajectories: batches, log-probabilities, updates, checkpoints.

Knows nothing of engines and rollouts; they meet in the trainer, through `turnwise.types`.
"""
