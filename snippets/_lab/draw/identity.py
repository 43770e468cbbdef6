"""Who has which color, symbol and dash, and what it is called: fixed for the whole site.

Ours are warm, a ramp in the order of the nav; PyTorch's are cool; ceilings are gray. The device is
told by how strong a mark is. All colors lie at least 3:1 from the light page and from the dark one;
a test holds that, and that what is compared can be told apart with a color-vision deficiency too. A
tensor in a drawing and a library in a chart have colors of their own, so that blue is K and nobody
takes a line of a chart for it.

A new post needs one line here: its place in ROAD. What a room measures beside its kernel is
derived: "<room>:exercise" has the room's color with an open symbol and a dashed line,
"<room>:<part>" the room's own, and `shade` tells several parts of one room apart.
"""

import math
from dataclasses import dataclass, replace

from snippets._lab.results.store import DataError


@dataclass(frozen=True)
class Identity:
    """How something looks wherever it is drawn."""

    name: str
    color: str
    symbol: str = "circle"
    dash: str = "solid"


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """A color of even steps to the eye (Björn Ottosson's OKLab, by lightness, chroma and hue)."""
    a = chroma * math.cos(math.radians(hue))
    b = chroma * math.sin(math.radians(hue))
    long, middle, short = (
        (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3,
        (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3,
        (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3,
    )
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    channels = [
        12.92 * x if x <= 0.0031308 else 1.055 * x ** (1 / 2.4) - 0.055
        for x in (min(1.0, max(0.0, x)) for x in linear)
    ]
    return "#" + "".join(f"{round(255 * x):02x}" for x in channels)


HEAT = ("#f3f1ea", "#6fb0ba", "#06414f")  # from 0 to 1; attention_map.css has the same


@dataclass(frozen=True)
class Rung:
    """A room's place on the ramp: its hue, and what its exercise is called in a chart."""

    hue: float
    lightness: float = 0.58
    exercise: str = ""
    chroma: float = 0.15


# In the order of the nav: amber, orange, red, crimson, magenta. Neighbors differ in lightness too.
ROAD = {
    "basic_attention": Rung(88, 0.65, "two queries a program", 0.13),
    "coalescing": Rung(105, 0.55, "", 0.11),
    "attention_weights": Rung(70, 0.53, "", 0.12),
    "multi_head_attention": Rung(45, 0.58, "one projection for q, k, v"),
    "attention_memory": Rung(112, 0.6, "eager, in blocks", 0.12),
    "vectorized_attention": Rung(64, 0.6, "32 keys at a time", 0.14),
    "composed_attention": Rung(50, 0.53, "k by strides, no transpose", 0.13),
    "tiled_attention": Rung(38, 0.635, "", 0.17),
    "flash_attention": Rung(22, 0.56, "", 0.2),
    "hopper_attention": Rung(2, 0.615, "", 0.2),
    "latency_hiding": Rung(95, 0.58, "", 0.08),
    "flash_backward": Rung(30, 0.56, "", 0.18),
    "hopper_backward": Rung(342, 0.63, "", 0.19),
    "masks_and_packing": Rung(330, 0.55, "", 0.15),
    "same_bits": Rung(80, 0.6, "", 0.1),
    "decode_attention": Rung(12, 0.53, "", 0.14),
    "ring_attention": Rung(30, 0.6, "", 0.1),
    "language_model": Rung(58, 0.56, "", 0.07),
}
MARKS = ("circle", "square", "triangle-up")  # in turn along the road


def _cool(name: str, hue: float, lightness: float, symbol: str, chroma: float = 0.13) -> Identity:
    return Identity(name, oklch(lightness, chroma, hue), symbol)


OTHERS = {
    "torch:eager": _cool("eager PyTorch", 225, 0.62, "diamond", 0.1),
    "torch:sdpa": _cool("PyTorch SDPA", 304, 0.54, "diamond", 0.22),
    "torch:math": _cool("PyTorch math", 205, 0.55, "cross", 0.07),
    "torch:flash": _cool("FlashAttention-2 (PyTorch)", 280, 0.58, "square", 0.17),
    "torch:efficient": _cool("PyTorch efficient", 189, 0.64, "triangle-up", 0.08),
    "torch:cudnn": _cool("PyTorch cuDNN", 132, 0.5, "triangle-down", 0.14),
    "torch:context_parallel": _cool("PyTorch context parallel", 320, 0.6, "star", 0.1),
    "torch:flex": _cool("PyTorch FlexAttention", 300, 0.64, "star", 0.14),
    "torch:matmul": _cool("PyTorch matmul", 240, 0.63, "hexagon", 0.13),
    "torch:softmax": _cool("PyTorch softmax", 232, 0.54, "hexagon", 0.13),
    "torch:transpose": _cool("PyTorch mT.contiguous()", 262, 0.53, "hexagon", 0.13),
    "torch:clone": _cool("PyTorch clone", 215, 0.6, "square", 0.09),
    "flash_attention_2": _cool("FlashAttention-2", 268, 0.54, "square", 0.19),
    "flash_attention_3": _cool("FlashAttention-3", 235, 0.55, "diamond", 0.12),
    "flash_attention_4": _cool("FlashAttention-4", 171, 0.57, "hexagon", 0.12),
    "flashinfer": _cool("FlashInfer", 197, 0.5, "star", 0.1),
    "triton_tutorial_06": _cool("Triton's tutorial 06", 212, 0.5, "x", 0.08),
    "ceiling": Identity("ceiling", "#808a94", "line-ew", "solid"),
    "context": Identity("", "#808a94"),  # what stands beside the matter: other targets, asides
}
BEST = ("flash_attention_3", "flash_attention_4")  # on Hopper: in each case, the faster of them
PYTORCH = replace(OTHERS["torch:sdpa"], name="PyTorch")

# What drawings show. The tensors of attention, wherever one of them is drawn:
TENSORS = {
    "q": oklch(0.6, 0.1, 190),
    "k": oklch(0.6, 0.15, 255),
    "v": oklch(0.64, 0.14, 62),
    "scores": oklch(0.58, 0.18, 330),
    "weights": oklch(0.56, 0.18, 22),
    "output": oklch(0.6, 0.14, 150),
}
Q, K, V, SCORES, WEIGHTS, OUTPUT = TENSORS.values()
# Memories, from the nearest to the farthest.
MEMORIES = {
    "registers": oklch(0.64, 0.12, 95),
    "shared memory": oklch(0.6, 0.12, 150),
    "L2": oklch(0.6, 0.1, 220),
    "HBM": oklch(0.54, 0.12, 275),
}
REGISTERS, SHARED, L2, HBM = MEMORIES.values()
WARPS = {
    "producer": "#808a94",
    "consumer 0": oklch(0.6, 0.14, 255),
    "consumer 1": oklch(0.62, 0.15, 45),
    "consumer 2": oklch(0.58, 0.17, 330),
}
PRODUCER, *CONSUMERS = WARPS.values()
LIMITS = {"memory": MEMORIES["HBM"], "arithmetic": oklch(0.58, 0.16, 320), "neither": "#808a94"}
ORDER = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down"]
SHADES = 5  # so many parts of one room can be told apart
WARM, COOL = (-28, 112), (150, 305)  # degrees of hue: ours, and all others
APART = 0.38  # of its range: by so much a shade's hue is further than the one before
FADE, FAINTEST = 0.75, 0.3  # a further device is fainter than the one before


def identity(key: str, shade: int = 0) -> Identity:
    """How an implementation or a tensor looks. Raises DataError for one that has no place yet."""
    name, comma, special = key.partition(",")
    found = _known(name)
    if comma:
        found = replace(found, name=f"{found.name},{special}")
    if shade:
        color = _shaded(ROAD.get(name.partition(":")[0]), shade)
        found = replace(found, color=color, symbol=ORDER[shade % len(ORDER)])
    return found


def _shaded(room: Rung | None, shade: int) -> str:
    """A part's color: ours stay warm and the others cool, and neighbors differ in lightness."""
    (low, high), hue = (WARM, room.hue) if room else (COOL, 255)
    hue = hue - 360 if room and hue > high else hue
    at = low + (hue - low + shade * APART * (high - low)) % (high - low)
    lightness, chroma = ((0.58, 0.64, 0.53), 0.14) if room else ((0.57, 0.6, 0.53), 0.1)
    return oklch(lightness[shade % 3], chroma, at % 360)


def named(key: str) -> str:
    """What an implementation is called in charts, tables and sentences."""
    return identity(key).name


def _known(name: str) -> Identity:
    if name in OTHERS:
        return OTHERS[name]
    if name in TENSORS or name in MEMORIES or name in WARPS:
        return Identity(name, (TENSORS | MEMORIES | WARPS)[name])
    if name in LIMITS:
        return Identity(f"limited by {name}", LIMITS[name])
    room, _, part = name.partition(":")
    if room == "torch":
        return replace(PYTORCH, name=f"PyTorch {part.replace('_', ' ')}")
    if room not in ROAD:
        raise DataError(f"{name!r} has no color in snippets/_lab/draw/identity.py")
    rung = ROAD[room]
    symbol = MARKS[list(ROAD).index(room) % len(MARKS)]
    own = Identity(room, oklch(rung.lightness, rung.chroma, rung.hue), symbol)
    if part == "exercise":
        said = rung.exercise or f"{room}, the exercise"
        return replace(own, name=said, symbol=f"{symbol}-open", dash="dash")
    return replace(own, name=f"{part} ({room})") if part else own


def strength(device: int) -> float:
    """The opacity of a device's marks: the first is solid, each further one fainter."""
    return float(max(FAINTEST, FADE**device))
