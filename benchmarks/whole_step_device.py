"""What workers of `whole_step.py` do on a GPU before they read their watch. PyTorch alone."""


def settled() -> dict[str, float]:
    """Wait until a GPU has done its work; the most memory that it has held, in GB. Nothing without
    one."""
    import torch  # whose threads are set first

    if not torch.cuda.is_available():
        return {}
    torch.cuda.synchronize()
    return {"memory": torch.cuda.max_memory_allocated() / 1e9}
