"""From a recipe to working parts: what it names, made, and checked that it goes together."""
