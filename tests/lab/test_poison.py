"""What a kernel forgets to write is seen: memory that nobody filled holds NaN in these tests."""

import pytest
import torch

CONSTRUCTORS = {
    "empty": lambda like: torch.empty(64, 3, dtype=like.dtype),
    "empty_like": torch.empty_like,
    "new_empty": lambda like: like.new_empty(64, 3),
    "empty_strided": lambda like: torch.empty_strided((64, 3), (3, 1), dtype=like.dtype),
    "new_empty_strided": lambda like: like.new_empty_strided((64, 3), (3, 1)),
    "resize_": lambda like: torch.zeros(0, dtype=like.dtype).resize_(64, 3),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_memory_that_nobody_filled_is_nan(name, dtype, device):
    with torch.device(device):
        found = CONSTRUCTORS[name](torch.zeros(64, 3, dtype=dtype))
    assert found.isnan().all()


def test_without_the_switch_it_is_not(device):
    """The test above can fail: freed memory is handed out again as it is."""
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        freed = [torch.ones(64, device=device) for _ in range(100)]
        del freed
        found = [torch.empty(64, device=device) for _ in range(100)]
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
    assert not all(x.isnan().all() for x in found)
