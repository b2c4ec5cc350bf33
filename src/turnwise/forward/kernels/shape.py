"""The shape of a model that kernels are compiled for."""

from dataclasses import dataclass

import torch

MACROS: dict[torch.dtype, tuple[str, ...]] = {
    torch.float32: (),
    torch.bfloat16: ("-DBFLOAT16",),
}
SIZES = 32
"""The size of a head is a multiple of it."""
LANES = 16
"""Numbers that are computed with at once."""


@dataclass(frozen=True)
class Shape:
    """The shape of a model's attention, which the kernels are compiled for."""

    heads: int
    key_heads: int
    size: int
    """Size of a head."""
    dtype: torch.dtype

    @property
    def packed(self) -> int:
        """Queries, keys and values of a token, side by side."""
        return (self.heads + 2 * self.key_heads) * self.size

    @property
    def macros(self) -> list[str]:
        """Macros for the compiler. Only where there `are_kernels`."""
        heads = f"-DHEADS={self.heads}", f"-DKEY_HEADS={self.key_heads}", f"-DSIZE={self.size}"
        return [*heads, *MACROS[self.dtype]]

    @property
    def are_kernels(self) -> bool:
        """Whether there are kernels for it."""
        return self.size % SIZES == 0 and self.dtype in MACROS
