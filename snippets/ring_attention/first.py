"""Ring attention in plain PyTorch: four processes, each with a quarter of the sequence."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS, N, D = 4, 512, 64


def ring_attention(q, k, v):  # [N / RANKS, D] each: my shard
    rank = dist.get_rank()
    acc, m, weight = torch.zeros_like(q), torch.full((len(q), 1), -torch.inf), 0.0
    for step in range(RANKS):
        if step < RANKS - 1:  # send on what I have; it travels while I compute with it
            following = torch.empty_like(k), torch.empty_like(v)
            messages = [dist.P2POp(dist.isend, x, (rank + 1) % RANKS) for x in (k, v)]
            messages += [dist.P2POp(dist.irecv, x, (rank - 1) % RANKS) for x in following]
            under_way = dist.batch_isend_irecv(messages)
        scores = q @ k.T * D**-0.5
        m_new = torch.maximum(m, scores.max(1, keepdim=True).values)
        alpha, p = torch.exp(m - m_new), torch.exp(scores - m_new)
        acc, weight, m = acc * alpha + p @ v, weight * alpha + p.sum(1, keepdim=True), m_new
        if step < RANKS - 1:
            for message in under_way:
                message.wait()
            k, v = following
    return acc / weight


def main(rank, port):
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS)
    torch.manual_seed(0)  # everyone draws the same sequence and takes a shard of it
    q, k, v = torch.randn(3, N, D)
    out = ring_attention(*(x.chunk(RANKS)[rank].contiguous() for x in (q, k, v)))
    want = torch.softmax(q.double() @ k.double().T * D**-0.5, dim=-1) @ v.double()
    worst = (out - want.chunk(RANKS)[rank]).abs().max()
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if rank == 0:
        print(f"largest difference from float64: {worst:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(int(os.environ.get("PORT", 29511)),), nprocs=RANKS)
