"""Functions to be written or repaired."""
