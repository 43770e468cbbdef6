"""hopper_backward's kernel on a CPU, with numbers, in random orders of its events.

The parts of a program take turns: who is next is drawn at random, and so is when a copy arrives,
when a product ends and when TMA has taken what it adds or stores. Until a copy has arrived its
buffer is NaN; a product reads its buffers when it ends; TMA and the tensor cores see what threads
have stored only after a fence. So a missing wait, a phase that is off by one, or a buffer that is
released too early shows as wrong numbers, and a wait for what never comes as `NumericalMismatch`.

Not played: registers. A product keeps the operands that it was started with.
"""

import contextlib
import itertools
import random
import threading
from pathlib import Path
from types import SimpleNamespace

import torch

from snippets._lab.judge.oracle import NumericalMismatch

from .op import stand_in

LANES = 32
PACES = (1, 1, 8, 64)  # rare orders are those in which one part, or what is done for it, is slow


class Stopped(BaseException):
    """Another part has failed."""


class Barrier:
    """An mbarrier: a phase ends after `count` arrivals and the bytes that were announced."""

    def __init__(self):
        self.count = self.missing = self.bytes = self.phase = 0

    def arrive(self, count=1, size=0):
        self.missing -= count
        self.bytes -= size
        if self.missing == 0 and self.bytes == 0:
            self.phase, self.missing = self.phase + 1, self.count


class Tile:
    """A buffer, or a view of it: what threads see of it, and what TMA and tensor cores do."""

    def __init__(self, memory, seen, program):
        self.memory, self.seen, self.program = memory, seen, program
        self.shape, self.dtype = list(memory.shape), memory.dtype

    def _view(self, change):
        return Tile(change(self.memory), change(self.seen), self.program)

    def reshape(self, shape):
        return self._view(lambda x: x.view(*shape))

    def permute(self, order):
        return self._view(lambda x: x.permute(*order))

    def slice(self, start, length, dim):
        return self._view(lambda x: x.narrow(dim, start, length))

    def load(self, layout):
        return self.memory.clone()

    def store(self, value):
        self.memory.copy_(value)
        self.program.unfenced[self.program.now].append(self)

    def fill(self, value):
        for x in (self.memory, self.seen):
            x.copy_(value) if isinstance(value, torch.Tensor) else x.fill_(value)


class Buffers(stand_in.Rows):
    """Shared memory that knows its shape."""

    def __init__(self, items, dtype, shape):
        super().__init__(items, dtype)
        self.shape = list(shape)


class Pointer:
    """An element of a tensor, or a tensor of them."""

    def __init__(self, memory, offset=0):
        self.memory, self.offset = memory, offset

    def __add__(self, offset):
        return Pointer(self.memory, self.offset + offset)

    def load(self, mask, other):
        """What lies there; `other` where the mask is false."""
        found = torch.full(self.offset.shape, other)
        mask = mask.expand_as(found)
        found[mask] = self.memory[self.offset[mask]]
        return found

    def store(self, value, mask):
        mask = mask.expand_as(value)
        self.memory[self.offset[mask]] = value[mask]


class Product:
    """A product that has been started."""

    def __init__(self, a, b, acc):
        self.a, self.b, self.acc = a, b, acc
        self.value = torch.full((a.shape[0], b.shape[1]), float("nan"))  # until it has ended

    def end(self):
        left = self.a.seen if isinstance(self.a, Tile) else self.a
        self.value = left.float() @ self.b.seen.float()
        if self.acc is not None:
            self.value = self.value + _value(self.acc)
        self.a = self.b = self.acc = None


def _value(x):
    """A tensor; of a product that has not ended, what its registers hold."""
    return x.value if isinstance(x, Product) else x


class Program(stand_in.Program):
    """One program of the kernel, its events in an order drawn from `order`."""

    def __init__(self, source, program, programs, order):
        self.order, self.now = order, 0  # which part runs
        self.copies, self.numbers = [], []  # on their way; numbers that no barrier knows of yet
        super().__init__(source, program, programs)

    def _names(self):
        names = super()._names()
        for layout in ("BlockedLayout", "NVMMASharedLayout", "SwizzledSharedLayout"):
            setattr(names["gl"], layout, lambda *_, **__: None)
        names["gl"].load, names["gl"].store = Pointer.load, Pointer.store
        return names | {
            "_reduce_add": lambda desc, at, buffer: self._leave(desc, at, buffer, "add_"),
            "async_copy": SimpleNamespace(
                async_load=self._copy_numbers, mbarrier_arrive=self._with_numbers
            ),
        }

    def allocate(self, dtype, shape, layout):
        if dtype is self.int64:  # only barriers are
            return Buffers([Barrier() for _ in range(shape[0])], dtype, shape)
        memory, seen = torch.full([2, *shape], float("nan"), dtype=dtype).unbind()
        return Buffers([Tile(a, b, self) for a, b in zip(memory, seen, strict=True)], dtype, shape)

    # Who is next.

    def partitions(self, parts, warps, registers):
        n = len(parts)
        self.unfenced, self.products, self.leaving = ([[] for _ in parts] for _ in range(3))
        self.ready = [lambda: True] * n
        self.turns = [threading.Semaphore(0) for _ in parts]
        self.back = threading.Semaphore(0)
        self.pace = [[self.order.choice(PACES) for _ in range(n)] for _ in range(4)]

        @torch.no_grad()  # each thread would begin with gradients
        def run(part, function, arguments):
            try:
                self.turns[part].acquire()
                with contextlib.suppress(Stopped):
                    if not self.stop.is_set():
                        function(*arguments)
                    for event in self.leaving[part]:  # shared memory goes with the program
                        event[-1].seen.fill_(float("nan"))
            except BaseException as error:  # noqa: BLE001 - the launch raises it
                self.errors.append(error)
            self.ready[part] = None
            self.back.release()

        threads = [
            threading.Thread(target=run, args=(i, *part), daemon=True)
            for i, part in enumerate(parts)
        ]
        for thread in threads:
            thread.start()
        while not self.errors and any(self.ready):
            self._one_event()
        self.stop.set()
        for turn in self.turns:
            turn.release()
        for thread in threads:
            thread.join()
        while not self.errors and any(self.leaving):
            self._take(next(i for i, x in enumerate(self.leaving) if x))

    def _one_event(self):
        parts = range(len(self.ready))
        can = [
            (self.pace[0][i], self._go_on, i) for i in parts if self.ready[i] and self.ready[i]()
        ]
        can += [(self.pace[1][i], self._multiply, i) for i in parts if self.products[i]]
        can += [(self.pace[2][i], self._take, i) for i in parts if self.leaving[i]]
        if self.copies:
            can.append((self.pace[3][0], self._arrive, self.order.randrange(len(self.copies))))
        if not can:
            waiting = [i for i in parts if self.ready[i]]
            self.errors.append(NumericalMismatch(f"parts {waiting} wait for what never comes"))
            return
        _, happens, what = self.order.choices(can, [weight for weight, *_ in can])[0]
        happens(what)

    def _go_on(self, part):
        self.now = part
        self.turns[part].release()
        self.back.acquire()

    def _pause(self, ready=lambda: True):
        """Another event may come first; this part goes on when it is ready."""
        part = self.now
        self.ready[part] = ready
        self.back.release()
        self.turns[part].acquire()
        if self.stop.is_set():
            raise Stopped

    # Barriers.

    def init(self, barrier, count):
        barrier.count = barrier.missing = count

    def wait(self, barrier, phase):
        self._pause(lambda: barrier.phase & 1 != phase)

    def expect(self, barrier, size):
        barrier.arrive(1, -size)

    def arrive(self, barrier, count):
        barrier.arrive(count)
        self._pause()

    # Copies.

    def fetch(self, desc, at, barrier, buffer):
        buffer.fill(float("nan"))
        self.copies.append((desc, at, barrier, buffer))
        self._pause()

    def _copy_numbers(self, buffer, pointer):
        buffer.fill(float("nan"))
        self.numbers.append((buffer, pointer))

    def _with_numbers(self, barrier, increment_count):
        assert not increment_count
        self.copies.append((None, self.numbers, barrier, None))
        self.numbers = []

    def _arrive(self, which):
        desc, at, barrier, buffer = self.copies.pop(which)
        if desc is None:
            for tile, pointer in at:
                tile.fill(pointer.memory[pointer.offset])
            barrier.arrive(LANES)
            return
        part, sizes = stand_in._window(desc, at)
        whole = torch.zeros(buffer.shape, dtype=buffer.dtype)  # what lies outside is zero
        whole[tuple(slice(n) for n in sizes)] = part
        buffer.fill(whole)
        barrier.arrive(0, desc.block_type.nbytes)

    def put(self, desc, at, buffer):
        self._leave(desc, at, buffer, "copy_")

    def _leave(self, desc, at, buffer, how):
        self.leaving[self.now].append((how, desc, at, buffer))
        self._pause()

    def _take(self, part):
        how, desc, at, buffer = self.leaving[part].pop(0)
        place, sizes = stand_in._window(desc, at)
        getattr(place, how)(buffer.seen[tuple(slice(n) for n in sizes)])

    def store_wait(self, left):
        mine = self.leaving[self.now]
        self._pause(lambda: len(mine) <= left)

    def fence(self):
        mine = self.unfenced[self.now]
        while mine:
            tile = mine.pop()
            tile.seen.copy_(tile.memory)

    # Products.

    def product(self, a, b, acc, use_acc=True, is_async=False):
        assert is_async
        started = Product(a, b, acc if use_acc else None)
        self.products[self.now].append(started)
        return started

    def _multiply(self, part):
        self.products[part].pop(0).end()

    def finish(self, left, deps):
        mine = self.products[self.now]
        self._pause(lambda: len(mine) <= left)
        values = [_value(x) for x in deps]
        return values[0] if len(values) == 1 else tuple(values)


class Kernel(stand_in._Kernel):
    """kernel.py's kernel, to be launched with tensors on a CPU."""

    def __init__(self, source, seeds):
        super().__init__(source)
        self.seeds = seeds

    def __getitem__(self, grid):
        def launch(**options):
            named = {name: self._argument(x) for name, x in options.items()}
            for number in range(grid[0]):
                order = random.Random(f"{next(self.seeds)} {number}")
                program = Program(self.source, number, grid[0], order)
                program.names["_hopper_backward_kernel"](**named)
                if program.errors:
                    raise program.errors[0]

        return launch

    def _argument(self, x):
        return Pointer(x.view(-1)) if isinstance(x, torch.Tensor) else super()._argument(x)


def _on_gpu(x):
    """A tensor, or each of several, that says it is on a GPU."""
    return type(x)(map(_on_gpu, x)) if isinstance(x, (tuple, list)) else stand_in._OnGPU.of(x)


@contextlib.contextmanager
def played(launcher, seed=0):
    """The launcher of a kernel.py takes tensors on a CPU, which its kernel then computes with."""
    names = launcher.__globals__
    check_inputs = names["_check_inputs"]

    def on_any_device(*given):
        capability = names["_capability"]
        names["_capability"] = lambda device: (9, 0)
        try:
            check_inputs(*map(_on_gpu, given))
        finally:
            names["_capability"] = capability

    source = Path(names["__file__"]).read_text(encoding="utf-8")
    stand_ins = {
        "_hopper_backward_kernel": Kernel(source, itertools.count(seed)),
        "_check_inputs": on_any_device,
    }
    before = {name: names[name] for name in stand_ins}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small
    names.update(stand_ins)  # and nothing else: Triton's interpreter adds names of its own
    try:
        yield
    finally:
        names.update(before)
        torch.set_num_threads(threads)
