"""What a folded file checks when it is run, of all options: it is folded with the kernel."""

# ruff: noqa: F821 - the names are those of the file that it becomes a part of
# mypy: ignore-errors


def main(causal, window, sinks, softcap, bias, packed, lse, grouped, D):
    """Check the kernel against PyTorch in float64; time it where there is a GPU."""
    torch.manual_seed(0)
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    Hkv, options = 2 if grouped else 4, {}
    q, k, v = (torch.randn(*x, D).half() for x in ((4, 200), (Hkv, 333), (Hkv, 333)))
    if window:
        options["window"] = (100, 30)
    if sinks:
        options["sinks"] = torch.randn(4)
    if softcap:
        options["softcap"] = 2.0
    if bias:
        options["bias"] = torch.randn(1, 4, 200, 333).half()
    if packed:  # two sequences, one after the other
        q, k, v = (x.transpose(0, 1).contiguous() for x in (q, k, v))
        options["cu_seqlens_q"] = torch.tensor([0, 77, 200], dtype=torch.int32)
        options["cu_seqlens_k"] = torch.tensor([0, 150, 333], dtype=torch.int32)

    def eager(q, k, v):
        if grouped:
            k, v = (x.repeat_interleave(2, 0) for x in (k, v))
        scores = q @ k.mT * D**-0.5
        if softcap:
            scores = 2 * (scores / 2).tanh()
        if bias:
            scores = scores + options["bias"][0]
        if causal or window:
            keys = torch.arange(k.shape[1])
            own = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
        if causal:
            scores = scores.masked_fill(keys > own, float("-inf"))
        if window:
            scores = scores.masked_fill(keys < own - 100, float("-inf"))
        if window and not causal:
            scores = scores.masked_fill(keys > own + 30, float("-inf"))
        if sinks:
            sink = options["sinks"].to(q.dtype)[:, None, None].expand(4, q.shape[1], 1)
            scores = torch.cat([scores, sink], -1)
        weights = scores.softmax(-1)
        if sinks:
            weights = weights[..., :-1]
        if lse:
            return weights @ v, scores.logsumexp(-1)
        return (weights @ v,)

    def all_of(q, k, v):
        if packed:
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
            one = eager(q[:, :77], k[:, :150], v[:, :150])
            two = eager(q[:, 77:], k[:, 150:], v[:, 150:])
            out = [torch.cat(x, 1) for x in zip(one, two, strict=True)]
            return [out[0].transpose(0, 1), *out[1:]]
        return eager(q, k, v)

    found, right = attention(q, k, v, **options), True
    found = found if lse else (found,)
    double, half = all_of(q.double(), k.double(), v.double()), all_of(q, k, v)
    for ours, theirs, want in zip(found, half, double, strict=True):
        ours, theirs = ((x - want).abs().max() for x in (ours, theirs))
        right = right and bool(ours <= 2 * theirs + 1e-3 * want.abs().max())  # both round alike
        print(f"largest difference from float64: {ours:.1e}, PyTorch's {theirs:.1e}")
    if q.is_cuda:
        ms = triton.testing.do_bench(lambda: attention(q, k, v, **options))
        print(f"{ms * 1000:.1f} µs")
    print("OK" if right else "WRONG: that is not rounding")
    return int(not right)
