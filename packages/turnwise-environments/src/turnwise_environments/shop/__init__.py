"""A shop to search and to buy in."""
