"""Algorithms that ask more of a run than its rewards: trees, hindsight, teachers, process
rewards."""
