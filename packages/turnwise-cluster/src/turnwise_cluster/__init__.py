"""Processes beside the run's own, on one machine or many, for turnwise (`wing.py`).

A run is handed what they do for it.
"""
