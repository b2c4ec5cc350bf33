"""The seam to what runs code that nobody has read, and what it takes and gives.

The package turnwise-sandbox has the sandboxes; docs/reference/sandbox.md says what each protects
from, and what not.
"""
