"""Inverted questions: many conditions, one answer that is easy to check and hard to find."""
