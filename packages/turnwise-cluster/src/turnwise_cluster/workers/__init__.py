"""Workers: processes that play episodes, whose tokens the process of the run samples.

Not here: what an episode does (`rollout`), and how processes come to nodes (`placement.py`).
"""
