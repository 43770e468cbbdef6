"""Where the elements of a tensor lie in memory. No Triton."""

from typing import Any

import numpy as np
import torch


class Elements:
    """The addresses of a tensor's elements, from `start` up to `end`; between them may be gaps."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.size = tensor.element_size()
        self.start = tensor.data_ptr()
        self._sorted: np.ndarray[Any, np.dtype[np.int64]] | None = None  # None: no gaps
        self.end = self.start + tensor.numel() * self.size
        if not tensor.is_contiguous():
            offsets = np.zeros(1, dtype=np.int64)
            for n, step in zip(tensor.shape, tensor.stride(), strict=True):
                offsets = np.add.outer(offsets, np.arange(n) * step).ravel()
            self._sorted = np.unique(offsets) * self.size + self.start
            self.end = int(self._sorted[-1]) + self.size

    def contain(self, addresses: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Which of some addresses lie in an element."""
        inside = (addresses >= self.start) & (addresses < self.end)
        if self._sorted is None:
            return inside
        below = np.searchsorted(self._sorted, addresses, side="right") - 1
        return inside & (addresses < self._sorted[np.maximum(below, 0)] + self.size)
