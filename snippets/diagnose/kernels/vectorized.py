"""All keys of a head in one load; three dimensions, heads and batch in one."""

import torch
import triton
import triton.language as tl


@triton.jit
def _all_keys(
    query_ptr,
    key_ptr,
    value_ptr,
    result_ptr,
    q_head,
    q_row,
    q_col,
    k_head,
    k_row,
    k_col,
    v_head,
    v_row,
    v_col,
    r_head,
    r_row,
    n_keys,
    width,
    softmax_scale,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row, head = tl.program_id(0), tl.program_id(1)
    keys = tl.arange(0, KEYS)
    columns = tl.arange(0, WIDTH)
    real = keys < n_keys
    inside = real[:, None] & (columns < width)[None, :]
    q_at = query_ptr + head * q_head + row * q_row + columns * q_col
    query = tl.load(q_at, mask=columns < width, other=0.0).to(tl.float32)
    k_at = key_ptr + head * k_head + keys[:, None] * k_row + columns[None, :] * k_col
    key = tl.load(k_at, mask=inside, other=0.0).to(tl.float32)
    score = tl.sum(key * query[None, :], axis=1) * softmax_scale
    score = tl.where(real, score, -float("inf"))
    weight = tl.exp(score - tl.max(score, axis=0))
    total = tl.sum(weight, axis=0)
    v_at = value_ptr + head * v_head + keys[:, None] * v_row + columns[None, :] * v_col
    value = tl.load(v_at, mask=inside, other=0.0).to(tl.float32)
    result = tl.sum(weight[:, None] * value, axis=0) / total
    r_at = result_ptr + head * r_head + row * r_row + columns
    tl.store(r_at, result, mask=columns < width)


def vector_attention(query, key, value, softmax_scale=None):
    if query.dim() != 3:
        raise ValueError(f"query has {query.dim()} dimensions; [heads, rows, width] is needed")
    if key.shape[0] != query.shape[0]:
        raise ValueError("as many heads of keys as of queries are needed")
    heads, rows, width = query.shape
    n_keys = key.shape[1]
    if softmax_scale is None:
        softmax_scale = 1.0 / width**0.5
    result = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    _all_keys[(rows, heads)](
        query,
        key,
        value,
        result,
        *query.stride(),
        *key.stride(),
        *value.stride(),
        *result.stride()[:2],
        n_keys,
        width,
        softmax_scale,
        KEYS=triton.next_power_of_2(n_keys),
        WIDTH=triton.next_power_of_2(width),
    )
    return result
