"""Environments, with their tools and rewards, and servers that offer any environment to others."""
