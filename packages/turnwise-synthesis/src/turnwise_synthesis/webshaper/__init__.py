"""WebShaper (arXiv 2507.15061): questions out of formulas of sets that are expanded by layers."""
