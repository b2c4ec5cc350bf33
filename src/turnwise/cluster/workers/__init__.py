"""Workers: processes that play episodes, whose tokens the process of the run samples.

Ray keeps them, and is imported where it is used (`ray_launcher.py`). Not here: what an episode does
(`rollout`).
"""
