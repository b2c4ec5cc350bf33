"""The command line: arguments, exit codes, what is printed, and what only commands do."""
