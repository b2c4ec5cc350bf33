"""Theorems of propositional logic, and a kernel that checks proofs."""
