"""Studies of one recipe in several arms; runs in the formats of others; how `tiny` is made."""
