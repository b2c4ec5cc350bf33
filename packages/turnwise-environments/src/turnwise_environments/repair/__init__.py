"""Repositories with a bug to be found and repaired."""
