"""Measurements of judged trajectories that this wing's estimators need: one signal per file.

Each file has the maker of its signal, which `wing.py` names.
"""
