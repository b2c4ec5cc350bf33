"""The dashboard: run folders looked at in a browser, every token with its reasons.

It only reads run folders; notes are kept beside them. Pages are static files, served to this
machine alone.
"""
