"""Verifiers and parts of rewards: plain functions of what the model wrote."""
