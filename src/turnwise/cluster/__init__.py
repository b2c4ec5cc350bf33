"""Processes beside the trainer's, on one machine or many, kept by Ray.

The trainer does not know of them: it is handed what plays its episodes. Ray is imported where it is
used (`ray_launcher.py`). Not here: the loop (`training`), and what an episode does (`rollout`).
"""
