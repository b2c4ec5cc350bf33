"""The command line: arguments, exit codes, what is printed, and what only commands do.

Not here: anything that a program would call (`turnwise`, the public functions).
"""
