"""Tables that are asked about and changed in SQL."""
