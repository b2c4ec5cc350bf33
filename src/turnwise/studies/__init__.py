"""Studies: the runs of one file's arms over its seeds, and what is written when they are there."""
