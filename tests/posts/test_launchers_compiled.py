"""Launchers that keep the kernels that Triton has compiled for them, and launch those directly.

Such a launcher must tell apart all that Triton tells apart, hand over the same arguments, and leave
alone what is not its own: streams, hooks, the caller's allocator. The yardstick is Triton's own
specialization; stand-ins for the kernel and what it compiles to show what would be launched.
"""

import gc
import json
import random
import weakref
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
from torch.autograd import forward_ad
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime import _allocation
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction, create_function_from_signature

from snippets._lab.judge.oracle import assert_attention, causal_mask, make_qkv
from snippets._lab.rooms import interpreted, load
from tests.apart import printed
from tests.floors import perhaps, some

ON_GPU = torch.cuda.is_available()
HOPPER = ON_GPU and torch.cuda.get_device_capability() == (9, 0)
ROOMS = ["flash_attention", "hopper_attention"]
without_a_gpu = pytest.mark.skipif(ON_GPU, reason="plays a GPU where there is none")


def with_each(test):
    """For every room, where a GPU is played."""
    return without_a_gpu(pytest.mark.parametrize("room", ROOMS)(test))


class Compiled:
    """Stands for what Triton has compiled: notes what it is launched with."""

    function, packed_metadata = 1, (4, 1, 77)

    def __init__(self, seen):
        self.seen = seen

    def run(self, x, y, z, stream, function, packed, told, enter, leave, *args):
        assert (y, z, stream, function, packed) == (1, 1, 5, self.function, self.packed_metadata)
        assert told is enter is leave is None, "no hook: none is called"
        self.seen.append(("kept", x, args))


class Kept(dict):
    """What a launcher keeps; `asked` is the key of its last launch."""

    def get(self, key):
        self.asked = key
        return super().get(key)


@dataclass
class Played:
    """A launcher with stand-ins. Called, it says who launched, on how many programs, with what."""

    room: str
    module: object
    real: object  # its kernel
    compiles: bool
    kept: Kept = field(default_factory=Kept)
    seen: list = field(default_factory=list)

    def __getitem__(self, grid):
        """Called in place of the kernel, for a launch by Triton."""

        def launch(*given, **options):
            self.during()
            arguments = dict(zip(self.real.arg_names, given, strict=False)) | options
            self.seen.append(("Triton", *grid, arguments))
            return Compiled(self.seen) if self.compiles else None

        return launch

    def during(self):
        """What a test wants to see at the time of the launch."""

    def __call__(self, *tensors, **options):
        before = len(self.seen)
        getattr(self.module, self.room)(*tensors, **options)
        ((by, programs, arguments),) = self.seen[before:]
        if by == "kept":
            arguments = dict(zip(self.real.arg_names, arguments, strict=True))
        return by, programs, arguments


@pytest.fixture
def play(monkeypatch):
    """A room → its launcher with stand-ins."""

    def start(room, architecture="sm_90", compiles=True):
        module = load(room, "kernel")
        played = Played(room, module, getattr(module, f"_{room}_kernel"), compiles)
        monkeypatch.setattr(module, f"_{room}_kernel", played)
        monkeypatch.setattr(module, "CompiledKernel", Compiled, raising=False)
        monkeypatch.setattr(module, "_compiled", played.kept)
        monkeypatch.setattr(module, "_plans", {})
        gpu = SimpleNamespace(get_current_stream=lambda device: 5)
        monkeypatch.setattr(driver, "_active", gpu)
        if room == "flash_attention":
            monkeypatch.setattr(module, "_architecture", lambda x: architecture)
        else:
            monkeypatch.setattr(module, "_refusals", lambda *_: ())
            monkeypatch.setattr(module, "_multiprocessors", lambda device: 132)
        return played

    return start


def specialization_of(kernel):
    """A function of a launch's arguments: all by which Triton finds the kernel it has compiled."""
    if not isinstance(kernel, JITFunction):  # the interpreter's
        kernel = JITFunction(kernel.fn, **kernel.kwargs)
    backend = make_backend(GPUTarget("cuda", 90, 32))
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)

    def key(arguments):
        _, specialization, options = bind(**arguments)
        return str((specialization, options))

    return key


def problems(room, count):
    """Tensors and options of calls in which every size is 1, a multiple of 16, and neither."""
    draw = random.Random(room)
    sizes = (1, 2, 16, 17, 48, 128)
    hopper = room == "hopper_attention"
    for _ in range(count):
        dtype = draw.choice((torch.float16, torch.bfloat16))
        Hkv, M, N = draw.choice((1, 2, 3)), draw.choice(sizes), draw.choice(sizes)
        H = Hkv * draw.choice((1, 2, 8))
        D = draw.choice((64, 128) if hopper else (16, 24, 64, 128))
        room_beside = draw.choice((0, 8, 16) if hopper else (0, 1, 8, 16))
        first = draw.choice((0, room_beside))
        tensors = []
        for heads, rows in ((H, M), (Hkv, N), (Hkv, N)):
            memory = torch.empty(1, heads, rows, D + room_beside, dtype=dtype)
            if draw.random() < 0.5:  # heads side by side
                memory = memory.view(1, rows, heads, D + room_beside).transpose(1, 2)
            tensors.append(memory[..., first : first + D])
        options = {"causal": draw.random() < 0.5, "return_lse": draw.random() < 0.5}
        options["align"] = draw.choice(("bottom_right", "top_left"))
        yield tensors, options | {"scale": draw.choice((None, 0.5, 16.0))}


@with_each
def test_a_kernel_is_kept_for_what_triton_compiles_it_for(room, play):
    """Calls that share a kernel here would share it in Triton too; and few are compiled twice."""
    played = play(room)
    specialization = specialization_of(played.real)
    found = {}
    for tensors, options in perhaps(problems(room, 400), "counted below, by kind"):
        _, _, arguments = played(*tensors, **options)
        if interpreted(room):  # options that are no parameters, as the launch by Triton has them
            (q, k, v), causal = tensors, options["causal"]
            config = played.module._tile_config("sm_90", q.dtype, q.shape[-1], causal)
            arguments |= {"num_warps": config.num_warps, "num_stages": config.num_stages}
            memory = {"q_ptr": q, "k": k, "v": v, "out_ptr": torch.empty_like(q)}
            arguments |= {n: x for n, x in memory.items() if isinstance(arguments[n], int)}
        if arguments["lse_ptr"] is not None:
            arguments["lse_ptr"] = torch.empty(1)
        key = specialization(arguments)
        assert found.setdefault(played.kept.asked, key) == key
    distinct = len(set(found.values()))
    assert distinct > 20
    assert len(found) <= 1.5 * distinct


def told(x):
    """An argument as the GPU is told it."""
    if hasattr(x, "block_shape"):
        return told(x.base), list(x.shape), list(x.strides), list(x.block_shape)
    if isinstance(x, torch.Tensor):
        return int, x.data_ptr()
    return type(x), x


@with_each
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"return_lse": True}], ids=str)
def test_a_kept_kernel_gets_what_triton_would_hand_it(room, options, play):
    played = play(room)
    tensors = make_qkv(2, 4, M=70, N=130, D=64, dtype=torch.float16)
    (by, programs, given), again = (played(*tensors, **options) for _ in range(2))
    assert (by, *again[:2]) == ("Triton", "kept", programs)
    given = {name: given[name] for name in given if name not in ("num_stages",)}
    if interpreted(room):
        del given["num_warps"]  # an option; the other kernel has a parameter of that name
    assert list(given) == list(played.real.arg_names), "in the order of the parameters"
    results = {"out_ptr", "lse_ptr", "out_desc"}  # other memory in each call
    for name in some(given.keys() - results):
        assert told(again[2][name]) == told(given[name])
    for name in some(given.keys() & results):
        assert (again[2][name] is None) == (given[name] is None)


def parts(key):
    """What a key consists of, its tuples themselves and all that is in them."""
    yield key
    if isinstance(key, tuple):
        for x in key:
            yield from parts(x)


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU."""

    place = "cuda:0"

    @property
    def device(self):
        return torch.device(self.place)


class OnAnother(OnGpu):
    place = "cuda:1"


@with_each
def test_each_device_has_kernels_of_its_own(room, play):
    played = play(room)
    tensors = make_qkv(1, 1, N=16, D=64, dtype=torch.float16)
    first, second, third = (
        played(*(x.as_subclass(kind) for x in tensors)) for kind in (OnGpu, OnAnother, OnGpu)
    )
    assert [by for by, *_ in (first, second, third)] == ["Triton", "Triton", "kept"]


@with_each
def test_what_is_no_compiled_kernel_is_not_kept(room, play):
    played = play(room, compiles=False)
    tensors = make_qkv(1, 1, N=16, D=64, dtype=torch.float16)
    assert [played(*tensors)[0] for _ in range(2)] == ["Triton", "Triton"]
    assert not played.kept


@with_each
def test_tensors_are_not_kept(room, play):
    played = play(room)
    for tensors, options in problems(room, 20):
        played(*tensors, **options)
    kept = [x for key in played.kept for x in parts(key)]
    plain = torch.device, torch.dtype, int, bool, str, type(None)
    assert {type(x) for x in some(kept) if not isinstance(x, tuple)} <= {*plain}
    addresses = {x.data_ptr() for tensors, _ in problems(room, 20) for x in tensors}
    assert not addresses & {x for x in kept if isinstance(x, int)}


@with_each
def test_what_follows_from_shapes_and_options_is_worked_out_once(room, play, monkeypatch):
    """A call that finds its Plan launches what it would launch if nothing were known."""
    played = play(room)
    plans = played.module._plans
    calls = list(problems(room, 200))
    results = {"out_ptr", "lse_ptr", "out_desc"}  # other memory in each call

    def launched(tensors, options):
        _, programs, given = played(*tensors, **options)
        names = some(played.real.arg_names)
        return programs, {name: told(given[name]) for name in names if name not in results}

    alone = []
    for call in calls:
        plans.clear()
        alone.append(launched(*call))
    together = [launched(*call) for call in calls]
    assert together == alone
    assert len(plans) > 100
    monkeypatch.setattr(played.module, "_refusals", None)
    assert [launched(*call) for call in calls] == alone


# A change to a call [1, 2, 64, 64] that is known, with these options; and what is said of it.
KNOWN = {"causal": True, "scale": 1.0}
ALMOST = {
    "strides": (lambda q: {"q": q.mT}, "q has strides|q starts at"),
    "dtype": (lambda q: {"k": q.double()}, "k is torch.float64"),
    "device": (
        lambda q: {"v": torch.empty_like(q, device="meta").as_subclass(torch.Tensor)},
        "v is torch.float16 on meta",
    ),
    "gradient": (lambda q: {"v": q.clone().requires_grad_()}, "v requires grad"),
    "sign": (lambda q: {"q": torch._neg_view(q)}, "q is a negated view"),
    "layout": (lambda q: {"k": q.as_subclass(torch.Tensor).to_sparse()}, "k is torch.sparse_coo"),
    "no tensor": (lambda q: {"k": q.float().numpy()}, "k is <class 'numpy.ndarray'>"),
    "no flag": (lambda q: {"causal": 1}, "causal is 1;"),
    "no number": (lambda q: {"scale": True}, "scale is True;"),
    "no option": (lambda q: {"align": np.array([1])}, "align is array"),
}


@pytest.fixture
def known(play, monkeypatch):
    """A room → its launcher as it refuses on its GPU, and the arguments of a call that it knows."""

    def start(room):
        refusals = load(room, "kernel")._refusals
        played = play(room)
        monkeypatch.setattr(played.module, "_refusals", refusals)
        monkeypatch.setattr(played.module, "_capability", lambda device: (9, 0), raising=False)
        kind = torch.Tensor if interpreted(room) else OnGpu
        q, k, v = (x.as_subclass(kind) for x in make_qkv(1, 2, N=64, D=64, dtype=torch.float16))
        arguments = {"q": q, "k": k, "v": v, **KNOWN}
        played(**arguments)
        return played, arguments

    return start


@with_each
@pytest.mark.parametrize("case", ALMOST)
def test_what_is_refused_is_refused_though_a_call_almost_like_it_is_known(room, case, known):
    played, arguments = known(room)
    change, said = ALMOST[case]
    with pytest.raises((TypeError, ValueError), match=said):
        played(**arguments | change(arguments["q"]))
    assert played(**arguments)[0] == "kept"
    assert len(played.module._plans) == 1


@with_each
def test_a_known_call_is_refused_where_derivatives_are_recorded(room, known):
    played, arguments = known(room)
    with forward_ad.dual_level(), pytest.raises(TypeError, match=r"torch\.func cannot see"):
        played(**arguments)
    arguments["q"].requires_grad_()
    with torch.no_grad():
        assert played(**arguments)[0] == "kept"
    with pytest.raises(ValueError, match="q requires grad"):
        played(**arguments)


@with_each
def test_a_known_call_is_another_at_an_address_that_no_descriptor_takes(room, known):
    played, arguments = known(room)
    q = arguments["q"]
    arguments["q"] = q.new_zeros(q.numel() + 4)[4:].view(q.shape)
    if room == "hopper_attention":
        with pytest.raises(ValueError, match="q starts at"):
            played(**arguments)
    else:
        by, _, given = played(**arguments)
        assert (by, given["USE_TMA"]) == ("Triton", False)


@with_each
def test_no_plan_holds_a_tensor(room, play):
    played = play(room)
    tensors = make_qkv(1, 1, N=16, D=64, dtype=torch.float16)
    played(*tensors)
    watched = [weakref.ref(x) for x in tensors]
    played.seen.clear()
    del tensors
    gc.collect()
    assert len(played.module._plans) == 1
    assert [x() for x in watched] == [None] * 3


@without_a_gpu
def test_the_callers_allocator_stays(play, monkeypatch):
    """flash_attention asks for memory for a descriptor where its kernel is divided among warps."""
    played = play("flash_attention")
    during = []

    def look():
        allocate = _allocation._allocator.get()
        during.append((allocate, allocate(96, 128, None)))

    monkeypatch.setattr(played, "during", look)

    def mine(size, alignment, stream):
        raise AssertionError("not asked for")

    triton.set_allocator(mine)
    try:
        played(*make_qkv(1, 1, N=128, D=128, dtype=torch.float16))
        assert _allocation._allocator.get() is mine
    finally:
        triton.set_allocator(_allocation._NULL_ALLOCATOR)
    ((allocate, memory),) = during
    assert allocate is not mine
    assert (memory.numel(), memory.dtype) == (96, torch.int8)


@with_each
@pytest.mark.parametrize("D", [64, 128])
def test_the_parts_whose_host_time_is_measured(room, D, play):
    """The last two are a launch as it is, and one for which Triton has to find the kernel."""
    played = play(room)
    bench = load(room, "bench")
    parts = bench.host_parts(*make_qkv(1, 1, N=16, D=D, dtype=torch.float16))
    *others, launch, found_by_triton = parts.values()
    assert len(others) >= 2
    assert list(parts)[-2:] == ["launch", bench.ASKED]
    for part in others:
        part()
    assert not played.seen
    for call in (launch, launch, found_by_triton, launch):
        call()
    assert [by for by, *_ in played.seen] == ["Triton", "kept", "Triton", "kept"]


# Triton's own launch of a kept kernel, with a driver that stands for a GPU's.
LAUNCHES = """
import json, types, torch, triton
from triton.runtime.driver import driver
from snippets._lab.probe.compiled import no_device
from snippets._lab.rooms import load

seen, streams = [], iter(range(100, 200))
device = no_device("sm_90")
device.get_current_stream = lambda device: next(streams)

def launcher(source, metadata):
    def launch(x, y, z, stream, function, packed, told, enter, leave, *args):
        for hook in [enter, leave] if enter else []:
            hook(told)
        seen.append([enter is not None, stream, [x, y, z], len(args)])
    return launch

device.launcher_cls = launcher
device.utils = types.SimpleNamespace(
    get_device_properties=lambda device: {"max_shared_mem": 232448},
    load_binary=lambda *args: (1, 1, 77, 5, 1024),
)
driver.set_active(device)
hooks, runtime = [], triton.knobs.runtime
q, k, v = (torch.zeros(1, 2, 256, 64, dtype=torch.bfloat16) for _ in range(3))
load("flash_attention", "kernel")._architecture = lambda x: "sm_90"
load("flash_attention", "kernel").INTERPRETED = True
load("hopper_attention", "kernel")._refusals = lambda *_: ()
load("hopper_attention", "kernel")._multiprocessors = lambda device: 132
for room in ("flash_attention", "hopper_attention"):
    module = load(room, "kernel")
    launch = getattr(module, room)
    launch(q, k, v)
    assert len(module._compiled) == 1
    kernel = getattr(module, f"_{room}_kernel")
    setattr(module, f"_{room}_kernel", None)  # Triton is not asked again
    launch(q, k, v)
    setattr(module, f"_{room}_kernel", kernel)
    for chain in (runtime.launch_enter_hook, runtime.launch_exit_hook):
        hook = lambda told: hooks.append(told.get()["name"])
        chain.add(hook)
        launch(q, k, v)
        chain.remove(hook)
print(json.dumps({"seen": seen, "hooks": hooks}))
"""


@pytest.mark.compiler
@without_a_gpu
def test_triton_launches_a_kept_kernel_on_the_stream_of_now_between_its_hooks(tmp_path):
    changes = {"TRITON_INTERPRET": None, "TRITON_CACHE_DIR": tmp_path}
    said = json.loads(printed("-c", LAUNCHES, **changes))
    assert said["hooks"] == [f"_{room}_kernel" for room in ROOMS for _ in ("enter", "exit")]
    hooked, streams, *others = zip(*said["seen"], strict=True)
    assert hooked == (True, False, True, True) * 2, "Triton calls hooks even if there is none"
    assert streams == (*range(100, 108),)
    for of_all in others:
        assert len({*map(str, of_all[:4])}) == len({*map(str, of_all[4:])}) == 1


# On a GPU.


def of_a_gpu(room):
    there = HOPPER if room == "hopper_attention" else ON_GPU
    return pytest.param(room, marks=pytest.mark.skipif(not there, reason="needs its GPU"))


on_a_gpu = pytest.mark.parametrize("room", [of_a_gpu(room) for room in ROOMS])


def check(room, q, k, v, **options):
    out = getattr(load(room, "kernel"), room)(q, k, v, **options)
    mask = causal_mask(q.shape[-2], k.shape[-2], device=q.device) if options.get("causal") else None
    return assert_attention(out, q, k, v, mask=mask)


@on_a_gpu
@pytest.mark.numerical
def test_one_call_after_another_whatever_the_sizes_and_the_memory(room):
    """Aligned then not, divisible then not, one key, and memory that another tensor has had."""
    for dtype in (torch.float16, torch.bfloat16):
        for M, N in ((256, 256), (255, 256), (256, 255), (1, 256), (256, 1), (17, 33), (256, 256)):
            for causal in (False, True):
                tensors = make_qkv(2, 2, M=M, N=N, D=64, dtype=dtype, device="cuda", seed=M + N)
                check(room, *tensors, causal=causal)
                del tensors  # the next ones lie where these did
    if room == "flash_attention":
        wide = make_qkv(1, 2, N=70, D=96, dtype=torch.float16, device="cuda")
        for first in (0, 8, 1, 3, 16, 0):
            check(room, *(x[..., first : first + 64] for x in wide))
