"""Search by the vectors of an embedding, alone or together with words."""
