"""The build of the model `tiny`, which comes with turnwise, from nothing."""
