"""The parts of a run, made from a recipe, and the checks that they go together."""
