"""The shapes of the models of `gpu.py`, known before PyTorch is loaded."""

SHAPES = {
    "tiny": (64, 2, 4, 2, 32, 128, 1024, True),
    "0.6B": (1024, 28, 16, 8, 128, 3072, 151_936, True),
    "1.7B": (2048, 28, 16, 8, 128, 6144, 151_936, True),
    "4B": (2560, 36, 32, 8, 128, 9728, 151_936, True),
    "8B": (4096, 36, 32, 8, 128, 12_288, 151_936, False),
}
"""Width, layers, heads, key heads, head size, inner width, vocabulary, tied embeddings: Qwen3's."""
