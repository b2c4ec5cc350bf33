"""Samplers: processes that sample the tokens of a run, each with the embedded engine and a model of
its own.

Not here: that engine (`turnwise.engines.embedded`), and where the processes are
(`cluster/places.py`).
"""
