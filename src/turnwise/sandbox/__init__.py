"""The seam to what runs code that nobody has read, and what it takes and gives.

Not here: sandboxes themselves, which the package turnwise-sandbox has; docs/reference/sandbox.md
says what each protects from, and what not.
"""
