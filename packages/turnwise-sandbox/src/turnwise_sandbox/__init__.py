"""Sandboxes, what grades in them, and tools over them."""
