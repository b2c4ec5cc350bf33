"""Web pages to act on: in Chromium, or, where they need no script, as plain data."""
