"""Measurements of judged trajectories: one signal per file, returned as plain data."""
