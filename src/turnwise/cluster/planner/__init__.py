"""Plans of runs on GPUs that are not there: memory, speed, cost, by arithmetic and simulation.

Pure functions; nothing is started, and no weights are read. Not here: the command that prints a
plan (`commands/planning.py`).
"""
