"""`turnwise doctor`: why a run does not learn, read from its log, be it turnwise's or another's."""
