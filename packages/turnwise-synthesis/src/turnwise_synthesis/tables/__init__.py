"""Questions about the tables of a SQLite file, with their queries and answers."""
