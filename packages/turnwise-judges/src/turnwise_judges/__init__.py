"""Judges: language models that score episodes; and what learns from judgements: reward models, and
policies from pairs."""
