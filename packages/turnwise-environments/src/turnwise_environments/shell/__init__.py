"""Tasks for a shell, judged by the files that are left."""
