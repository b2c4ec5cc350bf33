"""Running code that nobody has read: isolated, limited, and with a typed result.

`Sandbox` (sandbox.py) is its entry point; docs/reference/sandbox.md says what each tier protects
from, and what not.
"""
