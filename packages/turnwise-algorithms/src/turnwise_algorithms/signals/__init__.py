"""Measurements of judged trajectories that this wing's estimators need: one signal per file."""
