"""Evaluations of finished runs: judged again, and in the environments of others."""
