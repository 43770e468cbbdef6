"""Blocks that the DMA engines copy from GPU to GPU: no multiprocessor takes part.

For the GPUs of one host, each of which can write into the others' memory. Buffers and signals lie
in PyTorch's symmetric memory and are kept from call to call.
"""

import functools
import os
import socket

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

from .ring import _side_group

os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")  # copies need none
TIMEOUT_MS = 60_000  # after which a rank that waits for a signal gives up
ARRIVED, FREE = 0, 2  # signals, for each of two buffers: what they say of it

ALIGNED = 256  # bytes: where a tensor begins in a buffer

_rooms = {}  # process group → its Room, kept for the next call
_reached = {}  # process group → whether its GPUs can write into each other's memory


class Room:
    """Two buffers of a rank, those of the next rank, and how the neighbors signal to each other."""

    def __init__(self, ring, nbytes, device):
        self.rank, self.count, self.nbytes = ring.rank, min(2, ring.size - 1), nbytes
        self.next, self.previous = ((ring.rank + way) % ring.size for way in (1, -1))
        size = self.count * nbytes
        self.memory = symmetric.empty(size, dtype=torch.uint8, device=device)
        self.handle = symmetric.rendezvous(self.memory, ring.group)
        pad = self.handle.get_signal_pad(self.next, (4, ring.size), torch.uint32)
        self.flags = [pad[ARRIVED + b, ring.rank : ring.rank + 1] for b in range(self.count)]
        self.one = torch.ones(1, dtype=torch.int32, device=device).view(torch.uint32)
        self.stream = _stream(device)
        for b in range(self.count):
            self.free(b)

    def places(self, rank, *tensors):
        """Tensors like the given ones, in each buffer of a rank: this one or the next."""
        found = []
        for b in range(self.count):
            at, there = b * self.nbytes, []
            for x in tensors:
                place = self.handle.get_buffer(rank, x.shape, x.dtype, at // x.itemsize)
                there.append(place)
                at += _aligned(x)
            found.append(there)
        return found

    def free(self, b):
        """Tell the previous rank that it may write into a buffer of this one."""
        self.handle.put_signal(self.previous, FREE + b, TIMEOUT_MS)

    def copy(self, held, places, b):
        """Copy into a buffer of the next rank, on a stream of its own, and tell it afterwards."""
        self.handle.wait_signal(self.next, FREE + b, TIMEOUT_MS)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for x, place in zip(held, places, strict=True):
                place.copy_(x)
            self.tell(b)

    def tell(self, b):
        """Signal to the next rank by a copy too, so that it comes after the others."""
        self.flags[b].copy_(self.one)

    def wait(self, b):
        """Wait until what this rank sends has left, and what the previous one sends is here."""
        torch.cuda.current_stream().wait_stream(self.stream)
        self.handle.wait_signal(self.previous, ARRIVED + b, TIMEOUT_MS)


def _aligned(x):
    """Bytes that a tensor takes in a buffer."""
    return -(-x.nbytes // ALIGNED) * ALIGNED


@functools.cache
def _stream(device):
    """Where copies are queued, beside the stream of the steps."""
    return torch.cuda.Stream(device)


def _room(ring, *tensors):
    """The Room of a group, with buffers that hold such tensors: the last call's, or a larger one.

    A larger one is made by all ranks together, which takes milliseconds and cannot be captured in
    a CUDA graph.
    """
    nbytes = sum(map(_aligned, tensors))
    if ring.group not in _rooms or _rooms[ring.group].nbytes < nbytes:
        release(ring.group)
        _rooms[ring.group] = Room(ring, nbytes, tensors[0].device)
    return _rooms[ring.group]


def copied_blocks(ring, k, v):
    """As ring.py's blocks, of two ranks or more: copied into the next rank's memory.

    Whoever has read a buffer says so to the previous rank, which waits for that before it writes
    there again. All waiting is between two steps, when multiprocessors are free for it.
    """
    held = (k.contiguous(), v.contiguous())
    room = _room(ring, *held)
    mine, theirs = (room.places(rank, *held) for rank in (room.rank, room.next))
    for t in range(ring.size - 1):
        room.copy(held, theirs[t % 2], t % 2)
        yield held
        room.wait(t % 2)
        if t > 0:  # the first block is nobody's buffer
            room.free((t - 1) % 2)
        held = mine[t % 2]
    yield held
    room.free((ring.size - 2) % 2)


def release(group):
    """Give the buffers of a process group back; all its ranks do so between the same two calls."""
    if group in _rooms:  # no GPU may still write into another's buffers, or signal to it
        torch.cuda.synchronize()
        dist.barrier(_side_group(group))
        del _rooms[group]


def reached(ring, device):
    """Whether all ranks are GPUs of one host that reach each other; all ranks ask at once."""
    if ring.size == 1 or device.type != "cuda":
        return False
    if ring.group not in _reached:
        place = socket.gethostname(), os.environ.get("CUDA_VISIBLE_DEVICES"), device.index
        places = [None] * ring.size
        dist.all_gather_object(places, place, group=_side_group(ring.group))
        hosts, indices = {p[:2] for p in places}, {p[2] for p in places}
        mine = len(hosts) == 1 and all(
            torch.cuda.can_device_access_peer(device, i) for i in indices - {device.index}
        )
        answers = [None] * ring.size
        dist.all_gather_object(answers, mine, group=_side_group(ring.group))
        _reached[ring.group] = len(indices) == ring.size and all(answers)
    return _reached[ring.group]
