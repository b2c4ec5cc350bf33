"""Rules: from a log to causes why a run does not learn, a file for each family of them."""
