"""The memory that attention needs: by formula, counted without a GPU, measured on one.

Copy this file; it needs torch and nothing else. `python module.py` prints the table for one layer
and checks the formulas. Part of *Attention, Measured*, MIT license. Needs torch >= 2.11.
B is the batch, H heads, N queries and as many keys, D the dimension of a head. GB is 1e9 bytes.
"""

import numbers
import time
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SIZES = {torch.float16: 2, torch.bfloat16: 2, torch.float32: 4}  # bytes of an element
GB = 10**9
# Bytes by the makers' data sheets, see the page; of the H200 what PyTorch says, who reports a data
# sheet's 141 GB as 6 % more. A driver and PyTorch itself take some of it.
CARDS = {
    "T4": 16 * GB,
    "L4": 24 * GB,
    "RTX 4090": 24 * GB,
    "A100 40 GB": 40 * GB,
    "A100 80 GB": 80 * GB,
    "H100": 80 * GB,
    "H200": 150_109_880_320,
    "B200, 180 GB": 180 * GB,
    "B200, 192 GB": 192 * GB,
}


def eager_attention(q, k, v, *, causal=False):
    """softmax(q kᵀ / √D) v in separate operations; q, k, v and the result are [B, H, N, D]."""
    N, D = q.shape[-2:]
    scores = (q * D**-0.5) @ k.mT  # [B, H, N, N]
    if causal:
        hidden = torch.ones(N, N, dtype=torch.bool, device=q.device).triu(1)  # [N, N] bytes
        # A second [B, H, N, N]; the first goes when its name is given away.
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = scores.softmax(-1)  # [B, H, N, N], while the scores are still there
    del scores
    return weights @ v  # [B, H, N, D]


def attention_memory(B, H, N, D, dtype=torch.float32, *, causal=False, backward=False):
    """Bytes of each tensor of attention, and the most that is held at once.

    "eager" and "fused" are the peaks of `eager_attention` and of a kernel that keeps the scores on
    chip, q, k and v included; with `backward` those of a training step on a GPU (a CPU's softmax
    does without the product below). Raises TypeError or ValueError for sizes that are not positive
    integers and for other dtypes.
    """
    B, H, N, D = _checked(B=B, H=H, N=N, D=D)
    size = _size(dtype)
    rows = B * H * N * D * size  # q, k, v, the result, and the gradient of each
    square = B * H * N * N * size  # the scores, the weights, and the gradient of each
    mask = N * N if causal else 0  # one byte for each pair, shared by all heads
    logsumexp = B * H * N * 4  # one float32 per query, for every dtype
    if backward:
        # In the softmax's backward weights, their gradient and the scores' gradient meet, and a
        # GPU stores the product of the first two besides. With few keys (N below 2 D / 3, without
        # a mask) the peak comes later, beside all the gradients.
        eager = max(4 * square + 4 * rows + mask, square + 6 * rows)
        fused = 5 * rows + logsumexp  # the result, its gradient, those of q, k and v
    else:
        eager = square + max(square, rows) + mask  # scores and weights, or weights and result
        fused = rows + logsumexp
    named = dict.fromkeys(("q", "k", "v", "output"), rows)
    named |= dict.fromkeys(("scores", "weights"), square)
    named |= {"mask": mask, "logsumexp": logsumexp}
    return named | {"eager": 3 * rows + eager, "fused": 3 * rows + fused}


def largest_length(memory, B, H, D, dtype=torch.float32, *, implementation="eager", **options):
    """The largest N whose peak fits into `memory` bytes; 0 where not even one token does.

    `implementation` is "eager" or "fused"; `options` are those of `attention_memory`, whose errors
    it raises. Nothing is solved: more tokens never need less, so halving an interval finds it.
    """
    (memory,) = _checked(memory=memory)
    if implementation not in ("eager", "fused"):
        raise ValueError(f'implementation is {implementation!r}; allowed are "eager" and "fused"')

    def fits(N):
        return attention_memory(B, H, N, D, dtype, **options)[implementation] <= memory

    beyond = 1
    while fits(beyond):
        beyond *= 2
    largest = beyond // 2
    while beyond - largest > 1:
        middle = (largest + beyond) // 2
        largest, beyond = (middle, beyond) if fits(middle) else (largest, middle)
    return largest


def _checked(**sizes):
    """The sizes as Python's integers, which do not overflow; raise for what is no size."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise TypeError(f"{name} is {value!r}; it must be an integer")
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    return [int(value) for value in sizes.values()]


def _size(dtype):
    if dtype not in SIZES:
        allowed = ", ".join(str(known) for known in SIZES)
        raise ValueError(f"dtype is {dtype!r}; allowed are {allowed}")
    return SIZES[dtype]


# What operations on a GPU make inside and free before they return, in tensors of their result's
# size. The softmax's backward first stores the weights times their gradient.
INSIDE = {torch.ops.aten._softmax_backward_data.default: 1}


class _Allocations(TorchDispatchMode):
    """Adds up the storages that operations make while it is on, and takes off those that go."""

    def __init__(self, inside):
        super().__init__()
        self.now = self.peak = 0
        self._alive = set()
        self._inside = inside

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        before = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if _is_tensor(x)}
        result = operation(*args, **(kwargs or {}))
        made = [x for x in tree_leaves(result) if _is_tensor(x)]
        for tensor in made:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in before | self._alive:
                continue  # a view, or the result of an operation in place
            self._alive.add(key)
            self.now += storage.nbytes()
            weakref.finalize(storage, self._gone, key, storage.nbytes())
        inside = self._inside.get(operation, 0) * sum(x.nbytes for x in made)
        self.peak = max(self.peak, self.now + inside)
        return result

    def _gone(self, key, size):
        self._alive.discard(key)
        self.now -= size


def _is_tensor(value):
    return isinstance(value, torch.Tensor)


def counted_peak(function, *args, inside=None, **options):
    """Most bytes that a call holds at once in new tensors; for tensors on "meta" or the CPU.

    A tensor on "meta" has a shape and no memory, so a peak of any size can be counted anywhere.
    What an operation allocates and frees within itself is not seen: it counts where `inside`
    names the operation, and `INSIDE` does for a GPU.
    """
    with _Allocations(inside or {}) as allocations:
        function(*args, **options)
    return allocations.peak


def measured_peak(function, *args, **options):
    """Most bytes that a call holds at once on the current GPU beside what is there already."""
    function(*args, **options)  # libraries ask for their workspaces now, and keep them
    torch.cuda.synchronize()
    time.sleep(0.1)  # the thread of a backward pass lets go of its gradients a moment later
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function(*args, **options)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def training_step(attention, q, k, v, **options):
    """Forward and backward: the gradients of q, k and v, for a gradient of ones."""
    out = attention(q, k, v, **options)
    return torch.autograd.grad(out, (q, k, v), torch.ones_like(out))


def main():
    """Print the table of one layer, compare the peaks with what is counted, measure on a GPU."""
    B, H, N, D = 32, 32, 4096, 64
    said = attention_memory(B, H, N, D)
    print(f"B {B}, H {H}, N {N}, D {D}, torch.float32")
    for name in ("q", "k", "v", "scores", "weights", "output", "logsumexp"):
        print(f"{name:<11}{_gb(said[name])}")
    wrong = 0
    for backward in (False, True):
        said = attention_memory(B, H, N, D, backward=backward)
        q, k, v = torch.empty(3, B, H, N, D, device="meta", requires_grad=backward)
        run = (training_step, eager_attention) if backward else (eager_attention,)
        counted = 3 * said["q"] + counted_peak(*run, q, k, v, inside=INSIDE)
        seen = 3 * said["q"] + counted_peak(*run, q, k, v)
        wrong += counted != said["eager"]
        print(f"{'training' if backward else 'forward'}: eager {_gb(said['eager'])}, ", end="")
        print(f"counted {_gb(counted)}, fused {_gb(said['fused'])}")
        if counted != seen:
            print(f"  seen from outside {_gb(seen)}; the rest the softmax's backward on a GPU")
            print("  makes inside: the weights times their gradient, one N x N")
        for name in ("A100 80 GB", "H200"):
            fits = "fits" if said["eager"] <= CARDS[name] else "does not fit"
            longest = largest_length(CARDS[name], B, H, D, backward=backward)
            print(f"  {name}: eager {fits}; N {longest} is the longest that does")
    print("OK" if not wrong else f"WRONG: {wrong} formulas differ from what was counted")
    if torch.cuda.is_available():
        q, k, v = torch.randn(3, 1, 16, 2048, D, device="cuda")
        said = attention_memory(1, 16, 2048, D)
        print(f"q, k, v {tuple(q.shape)} on {torch.cuda.get_device_name()}")
        sdpa = torch.nn.functional.scaled_dot_product_attention
        for name, attention in (("eager", eager_attention), ("fused", sdpa)):
            peak = 3 * said["q"] + measured_peak(attention, q, k, v)
            print(f"{name}: formula {said[name] / 1e6:.2f} MB, measured {peak / 1e6:.2f} MB")
        said = attention_memory(1, 16, 2048, D, backward=True)
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        peak = 3 * said["q"] + measured_peak(training_step, eager_attention, q, k, v)
        print(f"eager, training: formula {said['eager'] / 1e6:.2f} MB, ", end="")
        print(f"measured {peak / 1e6:.2f} MB")
    return 1 if wrong else 0


def _gb(size):
    return f"{size / 1e9:7.2f} GB"


if __name__ == "__main__":
    raise SystemExit(main())
