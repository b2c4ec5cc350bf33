"""Looks at runs: the dashboard in the browser, and a run in the terminal while it goes on."""
