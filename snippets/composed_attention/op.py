"""composed_attention as a PyTorch op: torch.ops.attention_measured.composed_attention."""

import torch

from .kernel import _refusals, composed_attention


@torch.library.custom_op(
    "attention_measured::composed_attention", mutates_args=(), device_types="cuda"
)
def composed_attention_op(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    """softmax(q kᵀ · scale) v: the Triton kernels on a GPU, plain PyTorch on a CPU.

    Arguments and refusals are those of composed_attention(); tensors may require grad.
    """
    return composed_attention(q, k, v, scale=scale)


@composed_attention_op.register_kernel("cpu")
@torch.autocast("cpu", enabled=False)
def _on_cpu(q, k, v, scale=None):
    """The same without Triton: scores, softmax and sums in float32, rounded once."""
    _refuse(q, k, v, scale)
    return (_weights(q, k, scale) @ v.float()).to(q.dtype)


def _refuse(q, k, v, scale=None):
    for error in _refusals({"q": q, "k": k, "v": v}, "MD ND ND", row="N", scale=scale):
        raise error


def _weights(q, k, scale):
    scores = q.float() @ k.float().mT * (scale or q.shape[-1] ** -0.5)  # [..., M, N]
    weightless = (scores == float("-inf")).all(-1, keepdim=True)
    return scores.softmax(-1).masked_fill(weightless, 0.0)  # not 0 / 0


@torch.library.impl("attention_measured::composed_attention", "FuncTorchDynamicLayerFrontMode")
def _in_torch_func(q, k, v, *_):
    """Whatever torch.func does with the op comes here first, and is refused."""
    _refuse(q, k, v)


@composed_attention_op.register_fake
def _shapes_only(q, k, v, scale=None):
    """What torch.compile and torch.export ask: shape, dtype and device of a result."""
    _refuse(q, k, v, scale)
    return q.new_empty(q.shape)


# --8<-- [start:backward]
def _remember(ctx, inputs, output):
    q, k, v, scale = inputs
    ctx.save_for_backward(q, k, v)  # and not the weights: M · N numbers are computed again
    ctx.scale = scale or q.shape[-1] ** -0.5


@torch.autocast("cpu", enabled=False)
@torch.autocast("cuda", enabled=False)
def _backward(ctx, grad):
    """Gradients of q, k, v in plain PyTorch, in float32."""
    tensors = [*ctx.saved_tensors, grad]
    q, k, v, grad = (x.float().reshape(*x.shape[:-2], -1, x.shape[-1]) for x in tensors)
    weights = _weights(q, k, ctx.scale)  # [..., M, N]
    grad_weights = grad @ v.mT
    mean = (weights * grad_weights).sum(-1, keepdim=True)  # [..., M, 1]
    grad_scores = weights * (grad_weights - mean) * ctx.scale
    grads = grad_scores @ k, grad_scores.mT @ q, weights.mT @ grad
    pairs = zip(grads, ctx.saved_tensors, strict=True)
    return *(g.to(x.dtype).reshape(x.shape) for g, x in pairs), None  # scale has no gradient


composed_attention_op.register_autograd(_backward, setup_context=_remember)
# --8<-- [end:backward]
