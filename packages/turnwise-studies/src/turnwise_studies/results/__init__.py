"""Metrics, effects, curves and pages of studies."""
