"""What stands around the kernels of a folded file: launcher, refusals and self-check, of all ticks.

It is folded with the kernels. Without a backward, `_forward` is the launcher itself.
"""

# ruff: noqa: F821 - the names are those of the file that it becomes a part of, and the ticks
# mypy: ignore-errors


def _differentiable(
    q, k, v, sinks, scale, window, softcap, bias, cu_seqlens_q, cu_seqlens_k
):  # fmt: skip
    options = {
        "scale": scale,
        "window": window,
        "softcap": softcap,
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
    }
    return _Attention.apply(q, k, v, sinks, options)


class _Attention(torch.autograd.Function):
    """The launchers, as autograd calls them."""

    @staticmethod
    def forward(ctx, q, k, v, sinks, options):
        ctx.options = options
        out, lse = _forward(q, k, v, sinks, **options)
        ctx.save_for_backward(q, k, v, sinks, out, lse)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_out, grad_lse):
        return *_gradients(*ctx.saved_tensors, grad_out, grad_lse, **ctx.options), None


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
    (B, H, M, _), (_, Hkv, N, _) = q.shape, k.shape
    if window is not None:
        k, v, offset, left, begin = _visible(q, k, v, window)
        N = k.shape[2]
    # The logsumexp times log2(e), and Δ; rows begin at multiples of 16 bytes, as TMA needs.
    lse_log2, delta = q.new_empty((2, B * H, -(-M // 4) * 4), dtype=torch.float32)[..., :M]
    sizes = shape if packed else (B, Hkv, N, D)
    if packed and hides:  # what no query of a sequence sees stays 0
        grad_k, grad_v = (q.new_zeros(sizes) for _ in range(2))
    else:
        grad_k, grad_v = (q.new_empty(sizes) for _ in range(2))
    (qb, qh, qm, _), (kb, kh, kn, _), (vb, vh, vn, _) = q.stride(), k.stride(), v.stride()
    (gb, gh, gm, _), (ob, oh, om, _) = grad_out.stride(), out.stride()
    scale = D**-0.5 if scale is None else float(scale)
    if packed:
        sequences = len(cu_seqlens_q) - 1
        tiles, tiles_k = M // QUERIES_M + sequences + 1, N // KEYS_N + sequences + 1
    else:
        tiles, tiles_k = triton.cdiv(M, QUERIES_M), triton.cdiv(N, KEYS_N)
    grad_sinks = q.new_empty((B, H, tiles), dtype=torch.float32) if sinks is not None else None
    use_tma = hopper and (contiguous or _can_use_tma(q, k, v, grad_out))
    of_queries, of_keys, rows = (q, k, v, grad_out), (q, k, v, grad_out), (lse_log2, delta)
    if use_tma:
        of_queries = _loaded(of_queries, QUERIES_M, QUERIES_N)
        of_keys = _loaded(of_keys, KEYS_M, KEYS_N)
        rows = [TensorDescriptor(x, x.shape, x.stride(), [1, KEYS_M]) for x in rows]
    with torch.cuda.device_of(q):
        _queries_kernel[(tiles * B * H,)](  # first: it leaves logsumexp and Δ for the other
            *of_queries, out, lse, grad_lse, sinks, None, cu_seqlens_q, cu_seqlens_k,
            lse_log2, delta, grad_sinks, grad_q,
            qb, qh, qm, kb, kh, kn, vb, vh, vn, gb, gh, gm, ob, oh, om, None, None, None,
            None, lse_log2.stride(0), H, H // Hkv,
            _together(B * H, tiles) if hides else 1, M, N, sequences,
            offset if window is not None else 0 if packed else N - M, left, scale,
            scale * LOG2_E.value, softcap, D=D, CAUSAL=hides, BOTTOM_RIGHT=True,
            MASKED=hides or packed or N % QUERIES_N != 0,
            BLOCK_M=QUERIES_M, BLOCK_N=QUERIES_N, BLOCK_D=BLOCK_D, USE_TMA=use_tma, KEEP=keep,
            num_warps=QUERIES_WARPS, num_stages=QUERIES_STAGES,
        )  # fmt: skip
        _keys_kernel[(tiles_k * B * Hkv,)](
            *of_keys, *rows, None, cu_seqlens_q, cu_seqlens_k, grad_k, grad_v,
            qb, qh, qm, kb, kh, kn, vb, vh, vn, gb, gh, gm, None, None, None,
            None, lse_log2.stride(0), None, H, H // Hkv,
            _together(B * Hkv, tiles_k) if hides else 1, M, N, sequences,
            offset if window is not None else 0 if packed else N - M, left, scale,
            scale * LOG2_E.value, softcap, D=D, CAUSAL=hides, BOTTOM_RIGHT=True,
            BLOCK_M=KEYS_M, BLOCK_N=KEYS_N, BLOCK_D=BLOCK_D, USE_TMA=use_tma,
            num_warps=KEYS_WARPS, num_stages=KEYS_STAGES, maxnreg=KEYS_REGISTERS,
        )  # fmt: skip
    if window is not None and not packed:  # the keys that no query sees have zeros
        outside = 0, 0, begin, 0
        grad_k, grad_v = (torch.nn.functional.pad(x, outside) for x in (grad_k, grad_v))
    if sinks is not None:
        return grad_q, grad_k.view(shape), grad_v.view(shape), grad_sinks.sum((0, 2))
    return grad_q, grad_k.view(shape), grad_v.view(shape)


def _four_dimensions(x):
    if packed:
        return x.transpose(0, 1)[None]
    if contiguous:
        return x.view((1,) * (4 - x.dim()) + x.shape)
    return x[(None,) * (4 - x.dim())]


def _loaded(tensors, block_m, block_n):
    """q, k, v and grad_out as TMA loads them."""
    blocks = zip(tensors, (block_m, block_n, block_n, block_m), strict=True)
    return [TensorDescriptor(x, x.shape, x.stride(), [1, 1, n, BLOCK_D]) for x, n in blocks]


def _together(heads, tiles):
    """How many heads start together: as many as fill a GPU with AT_ONCE programs; a divisor.

    Then the last programs to start are short ones, of several heads.
    """
    return next((n for n in range(1, heads) if heads % n == 0 and n * tiles >= AT_ONCE), heads)


def _forward(
    q, k, v, sinks, scale, window, softcap, bias, cu_seqlens_q, cu_seqlens_k
):  # fmt: skip
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    rows = q.shape[1::-1] if packed else q.shape[:-1]
    lse = torch.empty(rows, dtype=torch.float32, device=q.device) if return_lse else None
    if packed:
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    elif contiguous:  # a view's strides are regular, also where a size is 1
        q, k, v = (x.view((1,) * (4 - x.dim()) + x.shape) for x in (q, k, v))
    else:
        q, k, v = (x[(None,) * (4 - x.dim())] for x in (q, k, v))
    (B, H, M, _), (_, Hkv, N, _) = q.shape, k.shape
    if bias is not None:
        bias = bias.expand(B, H, M, N)
    if window is not None:
        k, v, offset, left, begin = _visible(q, k, v, window)
        N = k.shape[2]
    if bias is not None and window is not None:
        bias = bias[..., begin:]
    (qb, qh, qm, _), (kb, kh, kn, _), (vb, vh, vn, _) = q.stride(), k.stride(), v.stride()
    if bias is not None:
        bb, bh, bm, _ = bias.stride()
    use_tma = hopper and (contiguous or _can_use_tma(q, k, v))
    if use_tma:
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
            qb, qh, qm, kb, kh, kn, vb, vh, vn, bb, bh, bm, N,
            H, H // Hkv, M, N, sequences, offset if window is not None else 0 if packed else N - M,
            left, (D**-0.5 if scale is None else float(scale)) * LOG2_E.value, softcap,
            D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=use_tma,
            CAUSAL=hides, MASKED=hides or packed or N % BLOCK_N != 0, BOTTOM_RIGHT=True,
            EXACT=False, WARP_SPECIALIZE=specialized and use_tma,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
    return (out, lse) if return_lse else out


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
    q, k, v, sinks, scale, window, softcap, bias, cu_seqlens_q, cu_seqlens_k
):  # fmt: skip
    """What the kernel cannot do, in order: which argument, what came, what is allowed."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    for name, x in (
        ("q", q),
        ("k", k),
        ("v", v),
        ("sinks", sinks),
        ("bias", bias),
        ("cu_seqlens_q", cu_seqlens_q),
        ("cu_seqlens_k", cu_seqlens_k),
    ):
        if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
            yield TypeError(f"{name} is {x!r:.60}; allowed: a dense torch.Tensor")
        if x.device != q.device:
            yield TypeError(f"{name} is on {x.device}; allowed: {q.device}")
        if not backward and x.requires_grad and torch.is_grad_enabled():
            yield ValueError(f"{name} requires grad, but has no backward; allowed: torch.no_grad()")
        if contiguous and (not x.is_contiguous() or x.data_ptr() % 16):
            yield ValueError(
                f"{name} lies otherwise; allowed: contiguous, at a multiple of 16 bytes"
            )
        if not contiguous and x.stride()[-1:] != (1,):
            yield ValueError(f"{name} has strides {x.stride()}; allowed: the last 1, others any")
        if x.is_neg() or x.numel() == 0:  # a negated view's memory holds the opposite sign
            yield ValueError(f"{name} is empty or a negated view; allowed: {name}.resolve_neg()")
    if not q.dtype == k.dtype == v.dtype or q.dtype not in (torch.float16, torch.bfloat16):
        yield TypeError(f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}; allowed: 16 bits, all alike")
    if packed and (not q.dim() == k.dim() == 3 or q.shape[-1] != D):
        yield ValueError(f"q {(*q.shape,)}, k {(*k.shape,)}; allowed: [total, heads, {D}]")
    if not packed and (not q.dim() == k.dim() in (2, 3, 4) or q.shape[-1] != D):
        yield ValueError(f"q {(*q.shape,)}, k {(*k.shape,)}; allowed: 2 to 4 sizes, the last {D}")
    if packed:
        H, Hkv, wanted = q.shape[1], k.shape[1], (len(k), k.shape[1] if grouped else q.shape[1], D)
    else:
        H, Hkv = [1, *q.shape][-3], [1, *k.shape][-3]
        wanted = (*q.shape[:-3], Hkv, k.shape[-2], D)[-q.dim() :]
    if not packed and not grouped:
        wanted = (*q.shape[:-2], k.shape[-2], D)
    if not k.shape == v.shape == wanted:
        yield ValueError(f"k {(*k.shape,)}, v {(*v.shape,)}; allowed with this q: {wanted}")
    if grouped and H % Hkv:
        yield ValueError(f"q has {H} heads and k {Hkv}; allowed: a multiple of k's")
    if max(q.numel(), k.numel()) // D >= 2**31:
        yield ValueError(f"q and k have shapes {q.shape} and {k.shape}; allowed: under 2^31 rows")
    if sinks is not None and sinks.dtype != torch.float32:
        yield TypeError(f"sinks is {sinks.dtype}; allowed: torch.float32")
    if sinks is not None and sinks.shape != (H,):
        yield ValueError(f"sinks has shape {(*sinks.shape,)}; allowed: [{H}]")
    if bias is not None and bias.dtype not in (q.dtype, torch.float32):
        yield TypeError(f"bias is {bias.dtype}; allowed: {q.dtype}, torch.float32")
    if bias is not None:
        found, (B, H, M) = (*bias.shape,), [1, 1, *q.shape][-4:-1]
        sizes = (1, B), (1, H), (1, M), (k.shape[-2],)
        if len(found) != 4 or not all(x in y for x, y in zip(found, sizes, strict=True)):
            yield ValueError(f"bias has shape {found}; allowed: [B or 1, H or 1, M or 1, N]")
    if packed and not cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32:
        yield TypeError("cu_seqlens_q, cu_seqlens_k: allowed: torch.int32")
    if packed and (cu_seqlens_q.shape != cu_seqlens_k.shape or cu_seqlens_q.dim() != 1):
        yield ValueError("cu_seqlens_q, cu_seqlens_k: allowed: [sequences + 1], both")
    if packed and len(cu_seqlens_q) < 2:
        yield ValueError("cu_seqlens_q, cu_seqlens_k: allowed: [sequences + 1], of one or more")
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
    if softcap is not None and not 2.0**-20 <= float(softcap) <= 2.0**20:
        yield ValueError(f"softcap is {softcap!r:.40}; allowed: 2^-20 to 2^20")
    gpu = torch.cuda.get_device_capability(q.device) if q.is_cuda else q.device.type
    if gpu not in ((*GPUS, "cpu") if UPCAST.value else GPUS) or torch.version.hip:
        yield ValueError(f"q is on {gpu}; allowed: {GPUS}, or a CPU with TRITON_INTERPRET=1")


def main():
    """Check the kernel against PyTorch in float64; time it where there is a GPU."""
    torch.manual_seed(0)
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    Hkv = 2 if grouped else 4
    q, k, v = (torch.randn(*x, D).half() for x in ((4, 200), (Hkv, 333), (Hkv, 333)))
    options = {
        "window": (100, 30),
        "softcap": 2.0,
        "sinks": torch.randn(4, requires_grad=backward),
        "bias": torch.randn(1, 4, 200, 333).half(),
        "cu_seqlens_q": torch.tensor([0, 77, 200]).int(),
        "cu_seqlens_k": torch.tensor([0, 150, 333]).int(),
    }
    if hides or packed:
        own, keys = torch.arange(200)[:, None] + 133, torch.arange(333)  # own: of each query
    if packed:  # two sequences, one after the other
        q, k, v = (x.transpose(0, 1).contiguous() for x in (q, k, v))
        first = own < 133 + 77
        own = torch.where(first, own - 60, own)

    def eager(q, k, v):
        if packed:
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        if grouped:
            k, v = (x.repeat_interleave(2, 0) for x in (k, v))
        scores = q @ k.mT * D**-0.5
        if softcap is not None:
            scores = 2 * (scores / 2).tanh()
        if bias is not None:
            scores = scores + options["bias"][0]
        if causal:
            scores = scores.masked_fill(keys > own, float("-inf"))
        if window is not None:
            scores = scores.masked_fill(keys < own - 100, float("-inf"))
        if window is not None and not causal:
            scores = scores.masked_fill(keys > own + 30, float("-inf"))
        if packed:
            scores = scores.masked_fill(first != (keys < 150), float("-inf"))
        if sinks is not None:
            sink = options["sinks"].to(q.dtype)[:, None, None].expand(4, 200, 1)
            scores = torch.cat([scores, sink], -1)
            v = torch.cat([v, torch.zeros_like(v[:, :1])], 1)
        out = scores.softmax(-1) @ v
        if packed:
            out = out.transpose(0, 1)
        if return_lse:
            return out, scores.logsumexp(-1)
        return out

    kinds, ours = (torch.half, torch.double), attention(q, k, v, **options)
    theirs, want = (eager(*(x.to(kind) for x in (q, k, v))) for kind in kinds)
    if return_lse:
        (ours, lse), (theirs, _), (want, wanted_lse) = ours, theirs, want
    error, allowed = ((x - want).abs().max().item() for x in (ours, theirs))
    right = error <= 2 * allowed + 1e-3 * want.abs().max().item()  # both round alike
    if return_lse:
        right = right and (lse - wanted_lse).abs().max().item() < 1e-4
    print(f"largest difference from float64: {error:.1e}, PyTorch's {allowed:.1e}")
    if backward:
        found = []
        for attend, kind in (
            (lambda *x: attention(*x, **options), torch.half),
            (eager, torch.half),
            (eager, torch.double),
        ):
            leaves = [x.detach().to(kind).requires_grad_() for x in (q, k, v)]
            made = attend(*leaves)
            if return_lse:
                made = torch.cat([x.flatten() for x in made])
            made = made.flatten() * torch.linspace(-1, 1, made.numel())
            if sinks is not None:
                leaves.append(options["sinks"])
            found.append(torch.autograd.grad(made.sum(), leaves))
        for ours, theirs, want in zip(*found, strict=True):
            error, allowed = ((x - want).abs().max().item() for x in (ours, theirs))
            right = right and error <= 2 * allowed + 1e-3 * want.abs().max().item()
            print(f"of a gradient: {error:.1e}, PyTorch's {allowed:.1e}")
    if q.is_cuda:
        print(f"{triton.testing.do_bench(lambda: attention(q, k, v, **options)) * 1000:.1f} µs")
    print("OK" if right else "WRONG: that is not rounding")
    return int(not right)
