"""The audit of an environment: attacks on its verifier and measurements, without a model."""
