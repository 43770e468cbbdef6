"""Idioms of kernels, right and wrong: Triton's front end and interpreter say what each is worth.

Each stands behind the lines of FUZZ in test_engine.py: `offs`, of float32 `x`, `y` and the
scalar `s`, of int32 `i`, `j` and the scalar `n`. Two spaces or a new line part expressions.
"""

import re

HELPERS = re.sub(
    r"(?m)(?<!\)\n)^def ",
    "@triton.jit\ndef ",
    """
def _add(a, b):
    return a + b


def _larger(a, b):
    if a > b:
        return a
    else:
        return b


def _best(a, at, b, bt):
    take = (a > b) | ((a == b) & (at < bt))
    return tl.where(take, a, b), tl.where(take, at, bt)


def _softmax(am, al, bm, bl):
    m = tl.maximum(am, bm)
    return m, al * tl.exp(am - m) + bl * tl.exp(bm - m)


def _decay(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


def _integer(a, b):
    return a * 1.5


def _constant(a, b):
    return 1


def _either(a):
    if a > 3:
        return 1.0
    else:
        return 2.0


def _early(a):
    if a > 3:
        return 1
    return 2


def _tensor_or_not(a):
    if a > 30:
        return a
    return 1


def _pairs(a):
    if a > 3:
        return 1, a
    return 3, 4


def _two_kinds(a):
    if a > 3:
        return 1
    return 2.0


def _one_or_two(a):
    if a > 3:
        return 1, 2
    return 3


def _named(a, *, scale=2.0):
    return a * scale


def _unused(a, *, scale=2.0):
    return a * 2.0


@triton.jit(noinline=True)
def _apart(a, b):
    return a * b


def _called(a, function: tl.constexpr):
    return function(a, a)


HALF = tl.constexpr(0.5)
ANNOTATED: tl.constexpr = tl.constexpr(4)
PLAIN: tl.constexpr = 4
TYPE = tl.float16


class Rows(NamedTuple):
    "A pointer, and a step."

    ptr: tl.tensor
    step: int = 1


class State(typing.NamedTuple):
    m: "tl.tensor"
    l: dict[str, int] | None = PLAIN

    def both(self, *, of={}):
        return [of for _ in self]


def _read(rows: Rows, count):
    return tl.load(rows.ptr + tl.arange(0, count) * rows.step)


def _online(state, x):
    m = tl.maximum(state.m, tl.max(x))
    return State(m, l=state.l * tl.exp(state.m - m) + tl.sum(tl.exp(x - m)))


def _turned(a):
    if a > 3:
        return Rows(1, a)
    return Rows(a, step=2)


def _two_tuples(a):
    if a > 3:
        return Rows(a, a)
    return State(a, a)
""",
)
IMPORTS = """import math
import typing
from typing import NamedTuple

import triton.language as T
from triton.language.extra import libdevice
"""

# Stored as float32.
REAL = """
tl.reduce(x, 0, _add)  x.reduce(0, _add)  tl.reduce(x, None, _add)  tl.reduce(x, 1, _add)
tl.reduce(x, 0, 3)  tl.reduce(x, 0, _larger)  tl.reduce(x, 0, _constant)  tl.reduce((x, y), 0, _add)
tl.reduce(t, 1, _add)  tl.reduce(t, 0, _larger)  tl.reduce(t, None, _add)
tl.reduce(t, 1, _add, keep_dims=True).reshape(16)  tl.reduce((x, offs), 0, _best)[0]
tl.reduce((t, t), 1, _softmax)[1]  tl.associative_scan(x, 0, _add)
tl.associative_scan(x, 0, _add, reverse=True)  x.associative_scan(0, _add)
tl.associative_scan(x, 1, _add)  tl.associative_scan(x, 0, _larger)
tl.sum(tl.associative_scan(t, 1, _add), 1)  tl.associative_scan((tl.sigmoid(x), y), 0, _decay)[1]
tl.sum(tl.associative_scan((t, t * 0.1), 0, _decay)[0], 0)  tl.cumsum(x, 0)
tl.cumsum(x, axis=0, reverse=True)  tl.cumprod(x)  x.cumsum()  tl.sum(tl.cumsum(t, 1), 1)
tl.cumsum(x, dtype=tl.float64)  tl.sort(x)  tl.sort(x, descending=True)  tl.sort(x, 1)  x.sort()
tl.sum(tl.sort(t) * x, 1)  tl.sort(t, 0)  tl.sum(tl.topk(x, 4))  tl.topk(x, 3)  tl.flip(x, 0)
tl.flip(x)  x.flip(-1)  tl.sum(tl.flip(t, 1) * x, 1)  tl.flip(tl.softmax(x), 0)
tl.gather(x, offs ^ 5, 0)  x.gather(i & 15, 0)  tl.gather(x, x, 0)  tl.gather(x, offs, 1)
tl.sum(tl.gather(t, (offs[:, None] + offs[None, :]) & 15, 1) * x, 1)  tl.gather(t, offs, 0)
tl.sum(tl.gather(t, (offs[:, None] + offs[None, :]) & 15, 0) * x, 1)
tl.reshape(tl.join(x, y), [32])  tl.sum(tl.join(x, y) * tl.arange(1, 3), 1)  tl.join(x, i)
tl.split(x)  tl.split(tl.join(x, y))[1]  tl.join(x, y).split()[0]
tl.interleave(x, y).reshape(2, 16).sum(0)  tl.cat(x, y, can_reorder=True).reshape(2, 16).sum(0)
tl.cat(x, y).reshape(2, 16).sum(0)  tl.cat(x, i)  tl.sum(tl.cat(t, t * 2, dim=1), 1)  tl.cat(t, x)
tl.unsqueeze(x, 0).reshape(16)  tl.squeeze(x[None, :], 0)  tl.squeeze(x, 0)  tl.rand(n, offs)
tl.rand(42, offs)  tl.rand(-7, offs)  tl.rand(n, offs, 6)  tl.rand(n, offs.to(tl.int64) + (1 << 33))
tl.rand(1 << 40, offs)  tl.rand(0.5, offs)  tl.rand(i, offs)  tl.rand(n, 3)  tl.rand(n, n)
tl.randn(n, offs)  tl.rand4x(n, offs)[3]  tl.randn4x(n, offs)[2]
tl.where(tl.rand(n, offs) > 0.5, x / 0.5, 0.0)  tl.uint_to_uniform_float(i)
tl.pair_uniform_to_normal(tl.rand(n, offs), tl.rand(3, offs))[1]  _either(n)  _either(n) * x
_two_kinds(n)  x * _early(n)  tl.zeros([16 * _early(n)], tl.float32)  _named(x)
_named(x, scale=3.0)  _unused(x, scale=3.0)  _unused(x, 3.0)  _apart(s, n)  _apart(x, n)
_called(x, _add)  x * HALF  x * ANNOTATED  PLAIN * x  x.to(TYPE) * 0  x % 1.0  x % y  -x % 0.7
x // 2.0  i.to(tl.int8) * 1.5  i.to(tl.int8) / 3  (offs < n) * 0.5  (offs < n) / 2
tl.maximum(i, 0.5)  tl.fma(x, y, 1)  tl.fma(x, i, y)  tl.fdiv(x, y)  tl.fdiv(x, 2)  tl.fdiv(x, 2.0)
tl.maximum(x.to(tl.float16), 0.1)  tl.fma(x.to(tl.float16), 1.1, 0.3)
tl.fma(x.to(tl.float16), i.to(tl.int8), x)  tl.clamp(x.to(tl.float16), -1.1, 1.1)  tl.div_rn(x, y)
tl.div_rn(x, 2)  tl.div_rn(i, 2)  tl.clamp(x, -1.0, 1.0)  tl.clamp(x, -1, 1)
tl.maximum(tl.where(x > 0, x, float("nan")), y, propagate_nan=tl.PropagateNan.ALL)
tl.minimum(tl.where(x > 0, x, float("nan")), y, propagate_nan=tl.PropagateNan.ALL)
tl.maximum(x, y, propagate_nan=True)  tl.mul(x, y)  tl.sub(x, 1)  x * (offs < n)
(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF).to(tl.float32, bitcast=True)
i.to(tl.int8, bitcast=True)  tl.sum(x.sum())  x.max(0).max(0)  x.maximum(y)  x.where(y, x)  x.dot(y)
x.softmax()  x.tanh()  x.clamp(0.0, 1.0)  x.size(0)  x.mean(0)  x.pow(2)  x.join(y)  x.float()
x.item()  x.logical_and(x > 0)  x.abs()  x.numel  x * math.pi  x * math.sqrt(2.0)  math.exp(x)
T.exp(x)  T.nosuch(x)  tl.nosuch(x)  tl.math.tanh(x)  tl.math.exp(x)  tl.extra.nosuch(x)
tl.extra.libdevice.nosuch(x)  libdevice.tanh(i)  libdevice.tanh(x.to(tl.float16))
triton.language.exp(x)  numpy.exp(x)  BLOCK.to(tl.float32)  (3).to(tl.float32)  n.to(tl.float32)
float(BLOCK)  tl.max(t.to(tl.float16), 1, return_indices=True)[0] * 2
tl.max(t.to(tl.float16), 1) * 1.001  tl.sum(tl.dot(t, t.T, input_precision="IEEE"), 1)
tl.dot(t.to(tl.int8), t.to(tl.int8))  tl.dot(t, t, input_precision="exact")
tl.load(x_ptr + offs, cache_modifier=".wb")
tl.load(x_ptr + offs, eviction_policy="evict_last", cache_modifier=".cg")
tl.load(x_ptr + offs, padding_option="")  tl.load(x_ptr + offs, eviction_policy="last")
tl.load(x_ptr + offs, boundary_check=(0,))  tl.load(x_ptr + offs, padding_option="zero")
x + tl.multiple_of(offs, (8, 8))  x + tl.multiple_of(n, 8)
x + tl.max_contiguous(tl.multiple_of(offs, 16), 16)  tl.advance(x_ptr, (1,))  x[:, :]
x[:, None, None].reshape(16)  x[None, :, :].reshape(16)  x[0:4]  x[n]  x[:, :, None]
tl.sum(n[None])  [a * 2 for a in (x, y)][1]  [a for a in x]  x.to("float32")
x.to(tl.float16, fp_downcast_rounding="up")  i.to(tl.float32, fp_downcast_rounding="rtne")
tl.arange(0, 12)  tl.arange(4, 4)  tl.arange(0, n)  tl.dot(x, y)  tl.sum(x, axes=0)  max(x)  ~x
tl.load(x_ptr + offs, other=0.0)  tl.load(x_ptr, mask=offs < n)  tl.load(offs + x_ptr)  x & 1
x_ptr + x_ptr  x_ptr * 2  x_ptr + 0.5  x_ptr + s  x if n > 3 else 0.0  x * (lambda a: a)  {}
x * * y  +x  x.reshape(3)  x.T  tl.trans(x)  tl.broadcast_to(x, [4])  x * tl.program_id(3)
x * tl.program_id(axis=0)  tl.full([16], float("-info"), tl.float32)  x.cast(tl.float16)
tl.cast(i, tl.float32)  tl.where(x != y, x, -float("inf"))  tl.sum(tl.expand_dims(x, 1) * t, 0)
tl.sum(x.expand_dims(1) * t, 0)  tl.sum(tl.permute(t, (1, 0)), 1)  tl.sum(tl.dot(t, t, x), 1)
tl.sum(tl.dot(t.to(tl.float16), t), 1)  tl.sum(tl.dot(t.to(tl.int32), t.to(tl.int32)), 1)
tl.sum(tl.dot(t, t, t, out_dtype=tl.float16), 1)
math.exp(10 ** 30)  float(())  (x * 0.0 + 1.00048828125).to(tl.float16)
(x * 0.0 - 1.00146484375).to(tl.float16)
_read(Rows(x_ptr), 16)  _read(Rows(x_ptr, 3), BLOCK)  _read(Rows(step=n, ptr=x_ptr), count=16)
_read(State(x_ptr), 16)  _read((x_ptr, 2), 16)  _read(Rows(), 16)  _read(Rows(x_ptr, 1, 1), 16)
_read(Rows(x_ptr, ptr=1), 16)  _read(Rows(x_ptr, columns=1), 16)  _read(Rows(x_ptr, None), 16)
Rows(x, y).step  Rows(x, y)[0]  Rows(x, y)[2]  Rows(x, y)[1:][0]  (Rows(x, 1) + Rows(y, 1))[2]
(Rows(x, 1) + Rows(y, 1)).ptr  _add(*Rows(x, y))  x * len(Rows(x, 4))  Rows(Rows(y, 1), x).ptr.ptr
State(x).l * x  Rows(x, y)._replace(ptr=y).ptr  State(x, y).both()  x * _turned(n).step
x * _two_tuples(n)[0]  Rows.ptr  Rows  Rows(x, y)  tl.full(State(4, 4), 1, tl.float32).reshape(16)
"""
# Stored as int32.
WHOLE = """
tl.reduce((x, offs), 0, _best)[1]  tl.reduce(i, 0, _integer)
tl.associative_scan((x, offs), 0, _best)[1]  tl.cumsum(i.to(tl.int8))  tl.cumsum(i > 0)
tl.xor_sum(i, 0)  tl.reduce_or(i, 0)  tl.xor_sum(x, 0)  tl.xor_sum(i > 0, 0)
tl.histogram(i & 15, 16)  tl.histogram(i & 15, 16, mask=x > 0)  tl.histogram(x, 16)
tl.histogram(i & 15, 12)  tl.randint(n, offs).to(tl.int32, bitcast=True)
tl.randint(n, i * 1000003) >> 4  tl.randint4x(n, offs)[3] >> 3
tl.philox(n, offs, offs, offs, offs)[1] >> 5  tl.umulhi(i.to(tl.uint32), 1234567) >> 1
tl.umulhi(x, i)  _early(n)  _tensor_or_not(n)  _pairs(n)[1] + _pairs(2)[0]  _one_or_two(n)
_early(n) * _early(2)  i.to(tl.int8) * _early(n)  m * m  m + 1  m + i  m * 3  m & i  ~m
m == (x > 0)  m < (x > 0)  m > 0  m == True  m.logical_and(x > 0)  m.logical_or(x > 0)  m ^ (x > 0)
m >> 1  m << 0  tl.sum(m)  tl.sum(m) // 3  tl.sum(m, axis=0) + tl.max(m, axis=0)
tl.maximum(m, x > 0)  m.to(tl.int8) + m.to(tl.int8)  1 << n * 8  i.sum() << 40  i << 31  i << 32
i << 33  i >> 31  i >> 32  i >> 40  i << (offs * 4)  i >> (offs * 4)  i << -1  i << (offs - 20)
i >> (offs - 20)  n << n  1 << 31  (1 << 32) >> 5  i.to(tl.uint32) >> 33  i.to(tl.int8) << 7
i.to(tl.int8) << 8  i.to(tl.int8) >> 8  i.to(tl.uint8) >> 3  i.to(tl.uint8) >> i.to(tl.uint8)
i.to(tl.uint8) << 5  i.to(tl.int16) << 15  i.to(tl.int64) << 31  i.to(tl.int64) << 64
i.to(tl.int64) >> 64  i.to(tl.uint8) >> 1 >> i  3 >> i.to(tl.uint8)  (-9) >> (i & 3)
((i & 3).to(tl.int64) << 40) >> 38  (i * 40).to(tl.int8)  i.to(tl.int8) * 40  i.to(tl.int8) + 127
i.to(tl.int8) + 128  i.to(tl.int8) - 127 - 127  i.to(tl.int16) * 30000
i.to(tl.int16) * i.to(tl.int16) * 3000  i.to(tl.uint8) - 20  i.to(tl.uint8) + -1  -(i.to(tl.uint8))
-(i.to(tl.int8) * 0 - 128)  ~i.to(tl.int8)  (i * 1000).to(tl.uint16)  i.to(tl.uint32) * 3 // 7
i.to(tl.int8) + i  i.to(tl.int8) + i.to(tl.uint8)  i.to(tl.int8) * i.to(tl.int16) * 900
i.to(tl.uint8) * i  (i.to(tl.uint32) + i) // 3  i.to(tl.uint32) // j  i.to(tl.uint8) % i.to(tl.int8)
i // j  i % j  -i // 4  -i % 4  i // -4  i % -4  7 // j  7 % j  -7 // j  -7 // 2  -7 % 3  n // -2
(-n) // 2  (-n) % 3  i.to(tl.int8) // j.to(tl.int8)  (i * 0 - 2147483647 - 1) // (j * 0 - 1)
i * 2000000000  i * i * i * i * i * i * i * i * i * i  i + 2147483647  i + 2147483648
i * 4294967296  i - 2147483647 - 2147483647  tl.cdiv(i, 4)  tl.cdiv(i, j)
tl.cdiv(n, 2) + tl.cdiv(7, 2)  triton.cdiv(BLOCK, 5)  triton.next_power_of_2(BLOCK - 3)
triton.cdiv(n, 2)  i.to(tl.int8) < 300  i.to(tl.uint8) < -1  i.to(tl.uint32) < -1
x.to(tl.float16) < 0.1  i < 2.5  2.5 > i  i.to(tl.int8) == 256  i.to(tl.int8) == i  (i > 0) == 1
tl.maximum(i.to(tl.int8), 200)  tl.fma(i, j, 1)  tl.clamp(i, -1, 1)  tl.add(i, 1)
tl.mul(i, 1 << 20, sanitize_overflow=False)  i.to(tl.uint32, bitcast=True) >> 3
(x > 0).to(tl.int8, bitcast=True)  tl.abs(i.to(tl.int8) * 0 - 128)  tl.abs(i.to(tl.uint8))
i.to(tl.int8).to(tl.uint8, bitcast=True)  x.to(tl.int8)
tl.max(i.to(tl.int8), 0, return_indices=True)[0] * 100 + offs  tl.max(i.to(tl.int8), 0) * 100 + offs
bool(n)  (offs ^ (offs >> 3)) * 0x45D9F3B  offs.to(tl.uint32) * 2654435761 >> 20
(i >> (offs % 8 * 4)) & 0xF  (i.to(tl.int8) << 4) >> 4  min(n, 3)  max(BLOCK, 3)  len(x.shape)
x.shape[0]  2 ** 3  n ** 2  n > 3 and n < 10  x.dtype.is_int_signed()
x.type.element_ty == tl.float32  x.type.shape[0]  i.dtype.int_bitwidth  BLOCK in (1, 2)  n == None
1 << -1  (x, i, j)[1:][0]
"""


def parted(text):
    return re.split(r"\n|  +", text.strip())


_LINE = "p = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,))\n"
_TILE = "p = tl.make_block_ptr(x_ptr, (12, 11), (16, 1), (0, 0), (16, 16), (1, 0))\n"
_TURNED = "p = tl.make_block_ptr(x_ptr, (11, 12), (1, 16), (0, 0), (16, 16), (0, 1))\n"
_OUT = "p = tl.make_block_ptr(out_ptr, (n,), (1,), (1,), (BLOCK,), (0,))\n"
_DESC = "d = tl.make_tensor_descriptor(x_ptr, [12, 11], [16, 1], [16, 16])\n"
_PADDED = _DESC.replace("])\n", '], padding_option="nan")\n')
_DESC_OUT = "d = tl.make_tensor_descriptor(out_ptr, [12, 11], [16, 1], [8, 8])\n"
_STORE = "tl.store(out_ptr + offs, {})"
_STORE_2D = "tl.store(out_ptr + r, {})"
_NOTHING = _STORE.format(0)

# What stands around several parts → the parts.
_AROUND = {
    _LINE + _STORE: """
tl.load(p)  tl.load(p, boundary_check=(0,), padding_option="zero")
tl.load(p, boundary_check=(0,))  tl.load(p, boundary_check=[0], padding_option="nan")
tl.load(p, boundary_check=(1,), padding_option="zero")
tl.load(p, boundary_check=(0, 0), padding_option="zero")  tl.load(p, padding_option="one")
tl.load(p, mask=offs < n)  tl.load(tl.advance(p, (3,)), boundary_check=(0,))
tl.load(p.advance([n]), boundary_check=(0,))  tl.load(tl.advance(p, 3))
tl.load(tl.advance(p, (n.to(tl.int64),)))""",
    "p = tl.make_block_ptr{}\n" + _NOTHING: """
(x_ptr, (64, 16), (16, 1), (2, 3), (4, 3), (1, 0))  (x_ptr, (64, 16), (16, 1), (2,), (4, 8), (1, 0))
(x_ptr, (64, 16), (16, 1), (2, 3), (4, 8), (1, 1))  (n, (n,), (1,), (0,), (BLOCK,), (0,))
(x_ptr, (64, 16), (16, 1), (2, 3), (n, 8), (1, 0))  (x_ptr + offs, (n,), (1,), (0,), (BLOCK,), (0,))
(x_ptr, (64, 16.0), (16, 1), (2, 3), (4, 8), (1, 0))""",
    _OUT + "{}": """
tl.store(p, x, boundary_check=(0,))  tl.store(p, 2.0, boundary_check=(0,))
tl.store(p, i, boundary_check=(0,))  tl.store(p, i.to(p.type.element_ty), boundary_check=(0,))
tl.store(p, x, mask=offs < 3)  tl.store(p, x[:, None], boundary_check=(0,))""",
    _DESC + _STORE_2D: """
d.load([0, 0])  d.load([0, 4])  d.load([-2, 0])  d.load([0])  d.load([0.0, 0])
d.load([n.to(tl.int64), 0])  d.load(0, 0)  tl.load_tensor_descriptor(d, [n, 0])""",
    _DESC_OUT + "{}": """
d.store([4, 4], tl.full([8, 8], 2, tl.int32))
tl.store_tensor_descriptor(d, [4, 4], tl.full([8, 8], 2.0, tl.float32))
d.atomic_max([0, 0], tl.full([8, 8], 2.0, tl.float32))""",
    "d = tl.make_tensor_descriptor{}\n" + _NOTHING: """
(x_ptr, [2, 16], [1, 16], [2, 16])  (x_ptr, [2, 16], [16, n], [2, 16])
(x_ptr, [n, 2], [2, 1], [2, 2])  (x_ptr, [16], [1], [16])  (x_ptr, [2, 16], [1], [2, 16])
(x_ptr, [2, 2, 2, 2, 2, 16], [16, 16, 16, 16, 16, 1], [1, 1, 1, 1, 1, 16])
(x_ptr, [2, 16], [16, 1], [16])  (x_ptr, [2, 16], [16, 1], [3, 16])
(x_ptr, [2, 16], [16, 1], [2, n])  (x_ptr, [2.0, 16], [16, 1], [2, 16])
(x_ptr, [n, 16], [16.0, 1], [2, 16])  (x_ptr, [offs, 16], [16, 1], [2, 16])
(x_ptr, [2, 16], [16, 1], [2, 16], padding_option="one")
(i_ptr, [2, 16], [16, 1], [2, 16], padding_option="nan")
(x_ptr + offs, [2, 16], [16, 1], [2, 16])  (n, [2, 16], [16, 1], [2, 16])""",
    "tl.atomic_{}": """
add(whole_ptr + offs, i)  add(whole_ptr + offs, i, mask=offs < n)  add(out_ptr + offs * 0, x)
add(out_ptr, x)  add(whole_ptr + offs, 1)  add(n, 1)  max(whole_ptr + offs, i)
min(whole_ptr + offs, i)  max(out_ptr + offs, x)  and(whole_ptr + offs, i)  or(whole_ptr + offs, i)
xor(whole_ptr + offs, i)  xchg(whole_ptr + offs, i)  cas(whole_ptr, -77, 5)  cas(whole_ptr, 3, 5)
cas(whole_ptr + offs, i * 0 - 77, i)  cas(whole_ptr + offs, -77, 5)  cas(whole_ptr, 1.0, 5)
cas(out_ptr, -77.0, 5.0)  add(whole_ptr, 1, sem="relaxed")  add(whole_ptr, 1, sem="weak")
add(whole_ptr, 1, scope="cta")""",
    "rows = Rows(x_ptr, 2)\n" + _STORE: """
_read(rows, 16)  tl.zeros([rows.step], tl.float32)  x if rows.step == 2 else y  rows.columns""",
    _DESC + "{}": "d.store([0, 0], 1.0)  d.store([0, 0], x)",
    "for k in {}:\n    x += 1.0\n" + _STORE.format("x"): """
range(1.5)  offs  tl.static_range(n)  tl.range(0, n, 1)  tl.range(0, n, num_stages=2)""",
    "{}\n" + _STORE.format("x"): """
import math  a, = x  assert n > 3  tl.static_assert(BLOCK == 3)  return  x + y  x @= y""",
    "if {}:\n    x = y\n" + _STORE.format("x"): "offs > 3  1 < n < 3  n == 1.5  out_ptr",
    "tl.store({})": """
out_ptr, x, mask=offs < n  out_ptr + offs, x, mask=offs  out_ptr + offs, x[None, :]""",
}
# Lines that store by themselves.
LINES = [
    *[x.replace("{}", part) for x, parts in _AROUND.items() for part in parted(parts)],
    _LINE + "tl.advance(p, (3,))\n" + _STORE.format("tl.load(p)"),
    _LINE + "if n > 3:\n    p = tl.advance(p, (1,))\n" + _STORE.format("tl.load(p)"),
    _TILE + _STORE_2D.format('tl.load(p, boundary_check=(0, 1), padding_option="zero")'),
    _TILE + _STORE_2D.format('tl.load(p, boundary_check=(1,), padding_option="zero")'),
    _TURNED + _STORE_2D.format("tl.load(p, boundary_check=(0, 1))"),
    """
p = tl.make_block_ptr(x_ptr, (64, 16), (16, 1), (2, 3), (4, 16), (1, 0))
total = tl.zeros([16], tl.float32)
for k in range(3):
    total += tl.sum(tl.load(p, boundary_check=(0, 1)), 0)
    p = tl.advance(p, (4, 1))
tl.store(out_ptr + offs, total)""",
    _DESC + _STORE.format("d.shape[0] + d.block_shape[1] + d.strides[0]"),
    _PADDED + _STORE_2D.format("d.load([0, 0])"),
    "while tl.atomic_cas(whole_ptr, -77, 1) == 1:\n    pass\ntl.atomic_xchg(whole_ptr, 0)",
    "a, b = tl.split(tl.reshape(x, [8, 2]))\ntl.store(out_ptr + offs, tl.interleave(-b, a))",
    "for k in tl.static_range(3):\n    x += k.to(tl.float32)\n" + _STORE.format("x"),
    "for k in tl.static_range(3):\n    x += k\n" + _STORE.format("x"),
    """
state = State(-1e9, 0.0)
for k in range(4):
    state = _online(state, tl.load(x_ptr + 16 * k + offs))
tl.store(out_ptr + offs, state.m + tl.log(state.l))""",
    *[
        head + "\n" + _STORE.format("_read(rows, 16)")
        for head in (
            "rows = Rows(x_ptr)\nrows.ptr = y_ptr",
            "rows = Rows(x_ptr, n)\nif n > 3:\n    rows = Rows(y_ptr, n + 1)",
            "rows = Rows(x_ptr, n)\nif n > 3:\n    rows = State(y_ptr, n)",
            "rows = Rows(x_ptr, n)\nfor k in range(3):\n    rows = Rows(rows.ptr + k, rows.step)",
            "rows = Rows(x_ptr, n)\nfor k in range(3):\n    rows = Rows(rows.ptr, 1.0)",
            "rows = Rows(x_ptr, n) if BLOCK == 16 else Rows(y_ptr, 1)",
            "rows: tl.constexpr = Rows(x_ptr, n)",
            "ptr, step = Rows(x_ptr, n)\nrows = Rows(ptr, step)",
            "Row = Rows\nrows = Row(x_ptr, n)",
        )
    ],
    "a, b, c = Rows(x, y)\n" + _STORE.format("a"),
    "T: tl.constexpr = State(BLOCK)\n" + _STORE.format("tl.full([T.m], T.l, tl.float32)"),
    "rows = Rows(x, None)\nif rows.step is None:\n    " + _STORE.format("rows.ptr"),
    "while True:\n    x += 1.0\n" + _STORE.format("x"),
    "if n > 3:\n    return\n" + _STORE.format("x"),
    "if n > 3:\n    z = x\nelse:\n    z = i\n" + _STORE.format("z"),
    "if n > 3:\n    z = x\n" + _STORE.format("z"),
    "for k in range(3):\n    break\n" + _STORE.format("x"),
    "for k in range(n)\n    x += 1.0\n" + _STORE.format("x"),
    "try:\n    x += 1.0\nfinally:\n    x += 1.0\n" + _STORE.format("x"),
    "def f(a):\n    return a\n" + _STORE.format("x"),
    _STORE.format("x") + "\n  x = y",
    _STORE.format("x") + "\nreturn x",
    'tl.store(out_ptr + offs, x, cache_modifier=".ca")',
    'tl.static_assert(BLOCK == 16, f"{BLOCK} and {BLOCK * 2}")\n' + _NOTHING,
    'tl.static_print(f"{n}")\n' + _NOTHING,
    "(out_ptr + offs).store(x)",
    # FlashAttention with block pointers.
    """
q_p = tl.make_block_ptr(x_ptr, (16, 16), (16, 1), (0, 0), (16, 16), (1, 0))
k_p = tl.make_block_ptr(y_ptr, (16, 13), (1, 16), (0, 0), (16, 16), (0, 1))
v_p = tl.make_block_ptr(x_ptr, (13, 16), (16, 1), (0, 0), (16, 16), (1, 0))
q = tl.load(q_p) * s
m_i = tl.full([16], float("-inf"), tl.float32)
l_i = tl.zeros([16], tl.float32)
acc = tl.zeros([16, 16], tl.float32)
for start in range(0, 13, 16):
    k = tl.load(k_p, boundary_check=(1,), padding_option="zero")
    scores = tl.where(start + offs[None, :] < 13, tl.dot(q, k), float("-inf"))
    m_new = tl.maximum(m_i, tl.max(scores, 1))
    p = tl.exp(scores - m_new[:, None])
    alpha = tl.exp(m_i - m_new)
    l_i = l_i * alpha + tl.sum(p, 1)
    acc = acc * alpha[:, None] + tl.dot(p, tl.load(v_p, boundary_check=(0,)))
    m_i = m_new
    k_p = tl.advance(k_p, (0, 16))
    v_p = tl.advance(v_p, (16, 0))
o_p = tl.make_block_ptr(out_ptr, (16, 16), (16, 1), (0, 0), (16, 16), (1, 0))
tl.store(o_p, (acc / l_i[:, None]).to(out_ptr.type.element_ty))""",
]

# What the interpreter computes otherwise than compiled code, and what the whole result is then.
COMPILED = {
    "(m + m).to(tl.int32)": 0,  # one bit wraps; NumPy's bool is "or"
    "(m + (offs < 16)).to(tl.int32) + m": 1,
    "(m - m).to(tl.int32)": 0,  # NumPy subtracts no bools
    "-m ^ m": 0,
    "(not m) ^ m": 1,  # Python's `not` of a whole tile
    "tl.umulhi(i | -2147483648, 2) & 1": 1,  # of the bits, not of the signs
    "tl.maximum(x * float('nan'), 3.0)": 3,  # maxnum
    "tl.maximum(x * 0.0 + 3.0, x * float('nan'))": 3,
    "(i.to(tl.int8) * 0 - 8) >> (j.to(tl.uint16) * 0 + 1)": 65532,  # it stays unsigned
    "n and 3": 5,  # what is known when compiling and true says nothing
    "~i.to(tl.uint8) + i.to(tl.uint8)": 255,
}
# What only a run shows: the interpreter's words and the engine's.
AT_RUN_TIME = {
    _DESC + _STORE_2D.format("d.load([0, 3])"): "block offset start must be 16-byte aligned",
    "d = tl.make_tensor_descriptor(x_ptr, [n, 16], [6, 1], [2, 16])\n"
    + _NOTHING: "stride must be 16-byte aligned",
    "d = tl.make_tensor_descriptor(x_ptr + 1, [2, 16], [16, 1], [2, 16])\n"
    + _NOTHING: "base must be 16-byte aligned",
}  # fmt: skip
