"""A run on disk: its folder, its checkpoints, the lock that keeps a second writer out."""
