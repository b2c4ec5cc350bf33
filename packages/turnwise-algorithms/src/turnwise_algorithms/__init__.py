"""Algorithms that ask more of a run than rewards: trees, hindsight, teachers, process rewards."""
