"""Language models behind endpoints of others, as chat: a client, and a recording of replies."""
