"""Alarms while a run trains: when it learns something else than its task."""
