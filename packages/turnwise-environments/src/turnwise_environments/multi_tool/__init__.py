"""Questions that need a search, a calculation, both, or neither."""
