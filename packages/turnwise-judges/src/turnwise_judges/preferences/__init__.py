"""Learning from preferences: pairs of the policy's own trajectories, after RL."""
