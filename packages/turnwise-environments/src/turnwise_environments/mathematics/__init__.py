"""Word problems and a calculator."""
