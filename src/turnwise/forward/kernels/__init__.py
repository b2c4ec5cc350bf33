"""C for what a small model does between its matrix products, and how it is compiled and called.

On Linux with gcc; without it PyTorch does the same. Knows nothing of models, sessions and losses.
"""
