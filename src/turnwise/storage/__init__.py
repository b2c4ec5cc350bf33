"""A run on disk: its folder, its checkpoints, the lock that keeps a second writer out.

Not here: what is written into them (`training`), and what is computed from them (`evaluation`).
"""
