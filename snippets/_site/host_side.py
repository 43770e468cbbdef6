"""What stands around the kernels of a folded file: launcher, refusals and self-check, of all ticks.

It is folded with the kernels. The launcher's body is that of `_differentiable`, `_forward` or
`_decode`, and its parameters are those of the complete kernel. A name of a tick stands for whether
it is ticked; an option that is not is None.
"""

# ruff: noqa: F821 - the names are those of the file that it becomes a part of, and the ticks
# mypy: ignore-errors


def _differentiable():
    return _Attention.apply(q, k, v, sinks, scale, window, softcap, cu_seqlens_q, cu_seqlens_k)


class _Attention(torch.autograd.Function):
    """The launchers, as autograd calls them."""

    @staticmethod
    def forward(ctx, q, k, v, sinks, *options):
        out, lse = _forward(q, k, v, sinks, *options)
        ctx.save_for_backward(q, k, v, sinks, out, lse)
        ctx.options = options
        return (out, lse) if return_lse else out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads):
        found = _gradients(*ctx.saved_tensors, *grads, *ctx.options)
        return *found, *[None for _ in ctx.options]


def _gradients(
    q, k, v, sinks, out, lse, grad_out, grad_lse,
    scale, window, softcap, cu_seqlens_q, cu_seqlens_k,
):  # fmt: skip
    """What autograd asks for. The same bits in each run."""
    grad_q, shape = q.new_empty(q.shape), k.shape
    grad_out = grad_out.resolve_neg()
    if contiguous and (not grad_out.is_contiguous() or grad_out.data_ptr() % 16):
        grad_out = grad_out.clone(memory_format=torch.contiguous_format)
    if not contiguous and grad_out.stride(-1) != 1:  # out.sum() hands over one number, expanded
        grad_out = grad_out.contiguous()
    if return_lse:
        grad_lse = grad_lse.resolve_neg().contiguous()
    q, k, v, grad_out, out = map(_four_dimensions, (q, k, v, grad_out, out))
    if softcap is not None:
        softcap = float(softcap)
    if window is not None:
        k, v, offset, left, begin = _visible(q, k, v, window)
    (B, H, M, _), (_, Hkv, N, _) = q.shape, k.shape
    if packed:  # a sequence has whole tiles of its own
        sequences = len(cu_seqlens_q) - 1
        tiles, tiles_k = M // QUERIES_M + sequences + 1, N // KEYS_N + sequences + 1
        size, sums_block = tiles * QUERIES_M, QUERIES_M
    else:  # rows begin at multiples of 16 bytes, as TMA needs
        tiles, tiles_k, size = triton.cdiv(M, QUERIES_M), triton.cdiv(N, KEYS_N), -(-M // 4) * 4
    sums = q.new_empty((2, B * H, size), dtype=torch.float32)
    lse_log2, delta = sums[..., : size if packed else M]  # the logsumexp times log2(e), and Δ
    sizes = shape if packed else (B, Hkv, N, D)
    grad_k, grad_v = q.new_empty(sizes), q.new_empty(sizes)
    (qb, qh, qm, _), (kb, kh, kn, _), (vb, vh, vn, _) = q.stride(), k.stride(), v.stride()
    (gb, gh, gm, _), (ob, oh, om, _), step = grad_out.stride(), out.stride(), lse_log2.stride(0)
    scale = D**-0.5 if scale is None else float(scale)
    use_tma = hopper and (contiguous or _can_use_tma(q, k, v, grad_out))
    use_tma = use_tma and (not packed or WRAP.value >= max(M, N))
    tensors, rows = (q, k, v, grad_out), (lse_log2, delta)
    if use_tma:
        blocks = zip(tensors, (QUERIES_M, QUERIES_N, QUERIES_N, QUERIES_M), strict=True)
        q, k, v, grad_out = (_descriptor(x, [1, 1, n, BLOCK_D], packed) for x, n in blocks)
    with torch.cuda.device_of(out):
        _queries_kernel[(tiles * B * H,)](  # first: it leaves logsumexp and Δ for the other
            q, k, v, grad_out, out, lse, grad_lse, None, cu_seqlens_q, cu_seqlens_k,
            lse_log2, delta, grad_q,
            qb, qh, qm, kb, kh, kn, vb, vh, vn, gb, gh, gm, ob, oh, om, None, None, None,
            None, step, H, H // Hkv,
            _together(B * H, tiles // sequences if packed else tiles, 256) if hides else 1,
            M, N, sequences,
            offset if window is not None else 0 if packed else N - M, left, scale,
            scale * LOG2_E.value, softcap, D=D, CAUSAL=hides, BOTTOM_RIGHT=True,
            MASKED=hides or packed or N % QUERIES_N != 0,
            BLOCK_M=QUERIES_M, BLOCK_N=QUERIES_N, BLOCK_D=BLOCK_D, USE_TMA=use_tma, KEEP=keep,
            num_warps=QUERIES_WARPS, num_stages=QUERIES_STAGES,
        )  # fmt: skip
        if use_tma:
            blocks = zip(tensors, (KEYS_M, KEYS_N, KEYS_N, KEYS_M), strict=True)
            q, k, v, grad_out = (_descriptor(x, [1, 1, n, BLOCK_D], packed) for x, n in blocks)
            lse_log2, delta = (TensorDescriptor(x, x.shape, x.stride(), [1, KEYS_M]) for x in rows)
        _keys_kernel[(tiles_k * B * Hkv,)](
            q, k, v, grad_out, lse_log2, delta, None, cu_seqlens_q, cu_seqlens_k, grad_k, grad_v,
            qb, qh, qm, kb, kh, kn, vb, vh, vn, gb, gh, gm, None, None, None,
            None, step, sums_block, H, H // Hkv,
            _together(B * Hkv, tiles_k // sequences if packed else tiles_k, 256) if hides else 1,
            M, N, sequences,
            offset if window is not None else 0 if packed else N - M, left, scale,
            scale * LOG2_E.value, softcap, D=D, CAUSAL=hides, BOTTOM_RIGHT=True,
            BLOCK_M=KEYS_M, BLOCK_N=KEYS_N, BLOCK_D=BLOCK_D, USE_TMA=use_tma,
            num_warps=KEYS_WARPS, num_stages=KEYS_STAGES, maxnreg=KEYS_REGISTERS,
        )  # fmt: skip
    if window is not None and not packed:  # the keys that no query sees have zeros
        outside = 0, 0, begin, 0
        grad_k, grad_v = (torch.nn.functional.pad(x, outside) for x in (grad_k, grad_v))
    found = grad_q, grad_k.view(shape), grad_v.view(shape)
    return found if sinks is None else (*found, _sinks_gradient(sinks, *rows))


def _together(heads, tiles, programs):
    """How many heads start together: as many as make so many programs; a divisor.

    Then the last programs to start are short ones, of several heads.
    """
    return next((n for n in range(1, heads) if heads % n == 0 and n * tiles >= programs), heads)


def _forward(
    q, k, v, sinks, scale, window, softcap, bias, cu_seqlens_q, cu_seqlens_k
):  # fmt: skip
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    rows = q.shape[1::-1] if packed else q.shape[:-1]
    lse = torch.empty(rows, dtype=torch.float32, device=q.device) if keep_lse else None
    q, k, v = map(_four_dimensions, (q, k, v))
    if window is not None:
        k, v, offset, left, begin = _visible(q, k, v, window)
    if softcap is not None:
        softcap = float(softcap)
    (B, H, M, _), (_, Hkv, N, _) = q.shape, k.shape
    if bias is not None:
        bias = bias.expand(B, H, M, -1)
    if bias is not None and window is not None:
        bias = bias[..., begin:]
    (qb, qh, qm, _), (kb, kh, kn, _), (vb, vh, vn, _) = q.stride(), k.stride(), v.stride()
    if bias is not None:
        bb, bh, bm, _ = bias.stride()
    use_tma = hopper and (contiguous or _can_use_tma(q, k, v))
    use_tma = use_tma and (not packed or WRAP.value >= N)
    if use_tma and packed:
        k, v = (_descriptor(x, [1, 1, BLOCK_N, BLOCK_D], packed) for x in (k, v))
    if use_tma and not packed:
        k, v = (TensorDescriptor(x, x.shape, x.stride(), [1, 1, BLOCK_N, BLOCK_D]) for x in (k, v))
    if packed:
        sequences = len(cu_seqlens_q) - 1
        tiles = M // BLOCK_M + sequences + 1
    # A kernel that makes a descriptor needs memory for it; the caller's own allocator stays.
    context = contextvars.copy_context()
    context.run(triton.set_allocator, lambda size, *_: q.new_empty(size, dtype=torch.int8))
    with torch.cuda.device_of(q):  # launch where the tensors are; does nothing for a CPU tensor
        context.run(_attention_kernel[((tiles if packed else triton.cdiv(M, BLOCK_M)) * H * B,)],
            q, k, v, out, lse, sinks, bias, cu_seqlens_q, cu_seqlens_k,
            qb, qh, qm, kb, kh, kn, vb, vh, vn, bb, bh, bm, N, H, H // Hkv, M, N, sequences,
            _together(H, tiles // sequences, 400) if packed and hides else None,
            offset if window is not None else 0 if packed else N - M,
            left, (D**-0.5 if scale is None else float(scale)) * LOG2_E.value, softcap,
            D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=use_tma,
            CAUSAL=hides, MASKED=hides or packed or N % BLOCK_N != 0, BOTTOM_RIGHT=True,
            EXACT=False, WARP_SPECIALIZE=specialized and use_tma,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
    return (out, lse) if keep_lse else out


def _decode():
    out = part = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device) if return_lse else None
    (B, H, M, _), (blocks, Hkv, capacity, _) = q.shape, k_cache.shape
    if paged:
        page, capacity = capacity, capacity * page_table.shape[1]
    keys = capacity if max_seqlen is None else max_seqlen
    if window is not None:  # what a token sees; a split begins at a multiple of its size
        keys = min(keys, window[0] + M + (SPLIT_KEYS - 1 if same_bits else 0))
    tile, BLOCK_M, BLOCK_D, programs, _, splits, early = _plan(
        _device_facts(q.device), q.dtype, B * Hkv, M * H // Hkv, D, page, keys
    )
    (qb, qh, qm, qd), (kb, kh, kn, kd) = q.stride(), k_cache.stride()
    vb, vh, vn, vd = v_cache.stride()
    if paged:
        tb, tn = page_table.stride()
    if splits > 1:  # the parts of all rows, and their logsumexps: one allocation costs less
        part = q.new_empty(B * H * M * splits * (D + 1), dtype=torch.float32)
    with torch.cuda.device_of(q):
        _attention_kernel[(programs * splits,)](
            q, k_cache, v_cache, cache_seqlens, page_table, part,
            lse if return_lse and splits == 1 else None, sinks, k_scale, v_scale,
            qb, qh, qm, qd, kb, kh, kn, kd, vb, vh, vn, vd, cache_seqlens.stride(0), tb, tn,
            Hkv, H // Hkv, M, capacity, blocks, splits, SPLIT_KEYS if same_bits else 0,
            (D**-0.5 if scale is None else float(scale)) * LOG2_E.value,
            PARTIAL=splits > 1, EARLY=early, D=D, PAGE=page if paged else 0,
            LEFT=window[0] if window is not None else None,
            BLOCK_M=BLOCK_M, BLOCK_N=tile.BLOCK_N, BLOCK_D=BLOCK_D,
            num_warps=tile.num_warps, num_stages=tile.num_stages,
        )  # fmt: skip
        if splits > 1:
            _combine_kernel[(B * H * M,)](
                part, out, lse, sinks, splits, H if sinks is not None else None,
                M if sinks is not None else None, D, COMBINED, BLOCK_D, early,
                num_warps=1, launch_pdl=early,  # one warp adds without shared memory
            )  # fmt: skip
    return (out, lse) if return_lse else out


def _four_dimensions(x):
    if packed:
        return x.transpose(0, 1)[None]
    if contiguous:  # a view's strides are regular, also where a size is 1
        return x.view((1,) * (4 - x.dim()) + x.shape)
    return x[(None,) * (4 - x.dim())]


def _visible(q, k, v, window):
    """The keys and values that a query may see, query m those from m + left to m + offset.

    And how many come before them. Packed, offsets count from a sequence's own corner.
    """
    corner = 0 if packed else k.shape[2] - q.shape[2]
    offset, left = corner + (0 if causal else window[1]), corner - window[0]
    begin = 0 if packed else max(left, 0)
    return k[:, :, begin:], v[:, :, begin:], offset - begin, left - begin, begin


def _can_use_tma(*tensors):
    """Whether rows of all tensors begin at multiples of 16 bytes."""
    return all(
        x.data_ptr() % 16 == 0 and all(step and step % 8 == 0 for step in x.stride()[:3])
        for x in tensors
    )


def _refusals(
    q, k, v, sinks, scale, window, softcap, bias, cu_seqlens_q, cu_seqlens_k,
    cache_seqlens, page_table, max_seqlen, k_scale, v_scale,
):  # fmt: skip
    """What the kernel cannot do, in order: which argument, what came, what is allowed."""
    functorch, forward = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    own = getattr(q, "dtype", None)
    for name, x, *kinds in (
        ("q", q, torch.float16, torch.bfloat16),
        ("k", k, torch.float8_e4m3fn if float8 else own),
        ("v", v, torch.float8_e4m3fn if float8 else own),
        ("sinks", sinks, torch.float32),
        ("bias", bias, own, torch.float32),
        ("cu_seqlens_q", cu_seqlens_q, torch.int32),
        ("cu_seqlens_k", cu_seqlens_k, torch.int32),
        ("cache_seqlens", cache_seqlens, torch.int32),
        ("page_table", page_table, torch.int32),
        ("k_scale", k_scale, torch.float32),
        ("v_scale", v_scale, torch.float32),
    ):
        if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
            yield TypeError(f"{name} is {x!r:.60}; allowed: a dense torch.Tensor")
        if x.device != q.device or x.dtype not in kinds:
            yield TypeError(f"{name} is {x.dtype} on {x.device}; allowed: {kinds} on {q.device}")
        if not backward and x.requires_grad and torch.is_grad_enabled():
            yield ValueError(f"{name} requires grad, but has no backward; allowed: torch.no_grad()")
        if contiguous and (not x.is_contiguous() or x.data_ptr() % 16):
            yield ValueError(f"{name} lies otherwise; allowed: contiguous, a multiple of 16 bytes")
        if not contiguous and not decode and x.stride()[-1:] != (1,):
            yield ValueError(f"{name} has strides {x.stride()}; allowed: the last 1, others any")
        if x.is_neg() or x.numel() == 0:  # a negated view's memory holds the opposite sign
            yield ValueError(f"{name} is empty or a negated view; allowed: {name}.resolve_neg()")
    if packed and (not q.dim() == k.dim() == 3 or q.shape[-1] != D):
        yield ValueError(f"q {(*q.shape,)}, k {(*k.shape,)}; allowed: [total, heads, {D}]")
    if decode and (not q.dim() == k.dim() == 4 or q.shape[-1] != D or q.shape[2] > 64):
        yield ValueError(f"q {(*q.shape,)}, k {(*k.shape,)}; allowed: [B, H, 1 to 64, {D}]")
    if not packed and not decode and (not q.dim() == k.dim() in (2, 3, 4) or q.shape[-1] != D):
        yield ValueError(f"q {(*q.shape,)}, k {(*k.shape,)}; allowed: 2 to 4 sizes, the last {D}")
    H, Hkv = [1, *q.shape][-2 if packed else -3], [1, *k.shape][-2 if packed else -3]
    if packed:
        wanted = (len(k), Hkv if grouped else H, D)
    else:
        wanted = (*q.shape[:-3], *k.shape[-3:-1], D) if grouped else (*q.shape[:-2], k.shape[-2], D)
    if paged:
        wanted = len(k), *wanted[1:]
    if not k.shape == v.shape == wanted:
        yield ValueError(f"k {(*k.shape,)}, v {(*v.shape,)}; allowed with this q: {wanted}")
    odd = [y for x in (k, v) for y in (D, x.data_ptr(), *x.stride()[:3]) if y % 2]
    if float8 and (odd or not k.stride(3) == v.stride(3) == 1):
        yield ValueError(f"k {k.stride()}, v {v.stride()}; allowed: even strides, the last 1")
    if grouped and H % Hkv:
        yield ValueError(f"q has {H} heads and k {Hkv}; allowed: a multiple of k's")
    if not decode and max(q.numel(), k.numel()) // D >= 2**31:
        yield ValueError(f"q and k have shapes {q.shape} and {k.shape}; allowed: under 2^31 rows")
    for name, x, shape in (
        ("sinks", sinks, (H,)),
        ("k_scale", k_scale, (Hkv,)),
        ("v_scale", v_scale, (Hkv,)),
    ):
        if x.shape != shape or not x.is_contiguous():
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed: {(*shape,)}, contiguous")
    if decode and cache_seqlens.shape != q.shape[:1]:
        yield ValueError(f"cache_seqlens has shape {(*cache_seqlens.shape,)}; allowed: [B]")
    if bias is not None:
        found, (B, H, M) = (*bias.shape,), [1, 1, *q.shape][-4:-1]
        sizes = (1, B), (1, H), (1, M), (k.shape[-2],)
        if len(found) != 4 or not all(x in y for x, y in zip(found, sizes, strict=True)):
            yield ValueError(f"bias has shape {found}; allowed: [B or 1, H or 1, M or 1, N]")
    for x in (cu_seqlens_q, cu_seqlens_k) if packed else ():
        if x.shape != cu_seqlens_q.shape or x.dim() != 1 or len(x) < 2:
            yield ValueError("cu_seqlens_q, cu_seqlens_k: allowed: [sequences + 1], both")
    if paged and k.shape[2] & (k.shape[2] - 1):
        yield ValueError(f"pages have {k.shape[2]} keys; allowed: a power of two")
    if paged and (page_table.dim() != 2 or len(page_table) != len(q)):
        yield ValueError(f"page_table has shape {(*page_table.shape,)}; allowed: [B, pages]")
    if decode:
        capacity = k.shape[2] * page_table.shape[1] if paged else k.shape[2]
        if capacity > 2**30:
            yield ValueError(f"a sequence has room for {capacity} keys; allowed: 2^30")
        if max_seqlen is not None and not (type(max_seqlen) is int and 1 <= max_seqlen <= capacity):
            yield ValueError(f"max_seqlen is {max_seqlen!r}; allowed: 1 to {capacity}, or None")
    if window is not None:
        sides = window if isinstance(window, (tuple, list)) else ()
        if len(sides) != 2 or not all(type(x) is int and 0 <= x < 2**30 for x in sides):
            yield ValueError(f"window is {window!r:.60}; allowed: two whole numbers from 0")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not 2.0**-64 <= float(scale) <= 1:
        yield ValueError(f"scale is {scale!r:.40}; allowed: 2^-64 to 1")
    if softcap is not None and (isinstance(softcap, bool) or not isinstance(softcap, numbers.Real)):
        yield TypeError(f"softcap is {softcap!r:.40}; allowed: a number")
    if softcap is not None and not 2.0**-20 <= float(softcap) <= 2.0**10:
        yield ValueError(f"softcap is {softcap!r:.40}; allowed: 2^-20 to 2^10")
    gpu = torch.cuda.get_device_capability(q.device) if q.is_cuda else q.device.type
    if gpu not in ((*GPUS, "cpu") if INTERPRETED else GPUS) or torch.version.hip:
        yield ValueError(f"q is on {gpu}; allowed: {GPUS}, or a CPU with TRITON_INTERPRET=1")


def main():
    """Check the kernel against PyTorch in float64; time it where there is a GPU."""
    torch.manual_seed(0)
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    Hkv = 2 if grouped else 4
    if decode:  # two new tokens of two sequences
        q, k, v = (torch.randn(2, *x, D).half() for x in ((4, 2), (Hkv, 1200), (Hkv, 1200)))
    else:
        q, k, v = (torch.randn(*x, D).half() for x in ((4, 200), (Hkv, 333), (Hkv, 333)))
    options = {
        "scale": 0.1,
        "window": (600 if decode else 100, 30),
        "softcap": 2.0,
        "sinks": torch.randn(4, requires_grad=backward),
        "bias": torch.randn(1, 4, 200, 333).half(),
        "cu_seqlens_q": torch.tensor([0, 77, 200]).int(),
        "cu_seqlens_k": torch.tensor([0, 150, 333]).int(),
        "cache_seqlens": torch.tensor([1190, 77]).int(),
        "page_table": torch.randperm(150).int().view(2, 75),
        "k_scale": 2.0 ** -torch.arange(Hkv),
        "v_scale": 2.0 ** torch.arange(Hkv),
    }
    if decode:
        k_cache, v_cache = k, v
    if float8:
        k_cache, v_cache = (x.to(torch.float8_e4m3fn) for x in (k, v))
        k = k_cache.half() * options["k_scale"][:, None, None]
        v = v_cache.half() * options["v_scale"][:, None, None]
    if paged:
        order = options["page_table"].flatten().argsort().tolist()  # page → its place
        k_cache, v_cache = (
            torch.stack([x[i // 75, :, i % 75 * 16 :][:, :16] for i in order])
            for x in (k_cache, v_cache)
        )

    def ours(q, k, v):
        if decode:
            k, v = k_cache, v_cache
        if packed:
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        if return_lse:
            out, lse = attention(q, k, v, **options)
            if packed:
                out = out.transpose(0, 1)
            return torch.cat([out, lse[..., None]], -1)
        if packed:
            return attention(q, k, v, **options).transpose(0, 1)
        return attention(q, k, v, **options)

    def eager(q, k, v):  # [4, M, D], [heads, N, D] twice
        if packed and q.shape[1] == 200:
            parts = ((q[:, :77], k[:, :150], v[:, :150]), (q[:, 77:], k[:, 150:], v[:, 150:]))
            return torch.cat([eager(*x) for x in parts], 1)
        if decode and q.dim() == 4:
            lengths = enumerate(options["cache_seqlens"])
            return torch.stack([eager(q[i], k[i, :, :n], v[i, :, :n]) for i, n in lengths])
        if grouped:
            k, v = (x.repeat_interleave(2, 0) for x in (k, v))
        scores = q @ k.mT * options["scale"]
        if softcap is not None:
            scores = 2 * (scores / 2).tanh()
        if bias is not None:
            scores = scores + options["bias"][0]
        if hides or decode:  # how far a key lies behind the query's own
            behind = torch.arange(-q.shape[1], 0)[:, None] - torch.arange(-k.shape[1], 0)
            scores = scores.masked_fill(behind < (0 if causal or decode else -30), float("-inf"))
        if window is not None:
            scores = scores.masked_fill(behind > options["window"][0], float("-inf"))
        if sinks is not None:
            sink = options["sinks"].to(q.dtype)[:, None, None].expand(4, q.shape[1], 1)
            scores = torch.cat([scores, sink], -1)
            v = torch.cat([v, torch.zeros_like(v[:, :1])], 1)
        if return_lse:
            return torch.cat([scores.softmax(-1) @ v, scores.logsumexp(-1, True)], -1)
        return scores.softmax(-1) @ v

    if backward:

        def gradients(attend, kind):
            tensors = [x.detach().to(kind).requires_grad_() for x in (q, k, v)]
            out = attend(*tensors)
            if sinks is not None:
                tensors.append(options["sinks"])
            loss = (out.flatten() * torch.linspace(-1, 1, out.numel())).sum()
            return [out, *torch.autograd.grad(loss, tensors)]

    right, tried = True, ((ours, torch.half), (eager, torch.half), (eager, torch.double))
    if backward:
        results = [gradients(*x) for x in tried]
    else:
        results = [[attend(*(x.to(kind) for x in (q, k, v)))] for attend, kind in tried]
    for found, theirs, want in zip(*results, strict=True):
        error, allowed = ((x - want).abs().max().item() for x in (found, theirs))
        right = right and error <= 2 * allowed + 1e-3 * want.abs().max().item()  # both round alike
        print(f"largest difference from float64: {error:.1e}, PyTorch's {allowed:.1e}")
    if q.is_cuda:
        print(f"{triton.testing.do_bench(lambda: ours(q, k, v)) * 1000:.1f} µs")
    print("OK" if right else "WRONG: that is not rounding")
    return int(not right)
