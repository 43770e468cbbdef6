"""Where the widgets stand and what they are made of, for tests of all and of one of them."""

from typing import NamedTuple

SLIDER = "input[type=range]"


class Widget(NamedTuple):
    """Where a widget stands and what it is made of; the parts are looked for in its box."""

    page: str
    box: str
    ready: str  # what the script has built
    says: str = "[role=status]"  # words that tell the view
    control: str = SLIDER
    key: str = "ArrowRight"  # pressed there, it changes the view
    colored: str = "[role=status]"  # follows the scheme, in `property`
    property: str = "color"
    data: str = ""  # the file it asks for
    nonsense: str = ""  # JSON that is none of its data
    stays: str = "table"  # what is there without a script, and where the data cannot be read
    target: int = 44  # pixels of a control under a finger
    old_link: str = ""  # a view that readers have kept, in the letters of its day: leave it so
    old_view: tuple[str, ...] = ()  # what that view chooses


WIDGETS = {
    "coalescing": Widget(
        page="posts/coalescing/",
        box=".am-lanes",
        ready="svg[role=img]",
        colored=".am-lanes-touched",
        property="fill",
        data="lanes_addresses",
        nonsense='{"requests": [{"stride": "one"}]}',
        old_link="?lanes=float16.8",
        old_view=("8", "float16"),
    ),
    "coverage": Widget(
        page="lab/method/",
        box=".am-coverage",
        ready="tbody tr",
        control="select >> nth=0",
        key="ArrowDown",
        colored=".am-rows-good strong",
        data="grid_cells",
        nonsense='{"columns": ["a"], "filters": [], "rows": 1}',
        stays="xpath=ancestor::*[@id='figure-coverage-grid']//table[1]",
        old_link="?cell-launcher=flash_attention&cell-dtype=float16&cell-mask=causal",
        old_view=("flash_attention", "float16", "causal"),
    ),
    "your_gpu": Widget(
        page="lab/your_gpu/",
        box=".am-cards",
        ready=".am-cards-choice",
        control="input:checked",
        colored=".am-rows-good strong",
        data="kernels_cards",
        nonsense='{"cards": [], "columns": ["launcher"]}',
        old_link="?gpu-card=t4&gpu-launcher=tiled_attention&gpu-verdict=fits",
        old_view=("t4", "tiled_attention", "fits"),
    ),
    "your_kernel": Widget(
        page="your_kernel/",
        box=".am-your-kernel",
        ready="fieldset",
        control="input[value=window]",
        key="Space",
        colored=".am-kernel-said",
        data="files",
        nonsense='{"files": []}',
        old_link="?kernel=causal.window.sinks.grouped.64.sm_90",
        old_view=("causal", "window", "sinks", "grouped", "64", "sm_90"),
    ),
    "latency_hiding": Widget(
        page="posts/latency_hiding/",
        box=".am-occupancy",
        ready="dd",
        key="End",
        data="calculator_cases",
        nonsense='{"limits": []}',
    ),
    "sum_orders": Widget(
        page="posts/same_bits/", box=".am-sums", ready="dd", control="textarea", key="5", stays="p"
    ),
    "decode_tokens": Widget(
        page="posts/decode_attention/",
        box=".am-tokens",
        ready="dd",
        control="[data-part=size]",
        key="ArrowDown",
        data="tokens_cases",
        nonsense='{"models": []}',
    ),
    "ring_attention": Widget(
        page="posts/ring_attention/",
        box=".am-ring",
        ready=".am-ring-line",
        key="Home",
        data="simulator_cases",
        nonsense='{"cases": []}',
    ),
    "attention_memory": Widget(
        page="posts/attention_memory/",
        box=".am-memory",
        ready=".am-memory-frame",
        says=".am-memory-summary",
        control="input[type=text] >> nth=0",
        key="ArrowDown",
        colored="input[type=text]",
        property="backgroundColor",
        data="calculator_cases",
        nonsense='{"cards": [{"name": "H100", "bytes": "many"}]}',
        old_link="?memory=2.16.8192.128.float16.h200.training.causal",
        old_view=("2", "16", "8192", "128", "float16", "h200", "training", "on"),
    ),
    "attention_map": Widget(
        page="posts/attention_weights/",
        box=".am-map",
        ready=".am-map-heads button >> nth=71",
        says=".am-map-summary",
        control=".am-map-tokens button[tabindex='0']",
        colored=".am-map-tokens button >> nth=3",
        property="backgroundColor",
        stays=".am-map-light",
        target=24,
        old_link="?map=pronoun.4.3.2.column",
        old_view=("pronoun", "4", "3", "column"),
    ),
    "scene": Widget(
        page="posts/tiled_attention/",
        box=".am-scene",
        ready="[data-part=board]",
        data="scene_steps",
        nonsense='{"examples": [{"tiles": [{"start": 0}]}]}',
        old_link="?step=5&query=2&mask=causal",
        old_view=("5", "2", "causal"),
    ),
    "road": Widget(
        page="",
        box=".am-way",
        ready=SLIDER,
        says="[data-part=time]",
        key="ArrowLeft",
        colored="[data-part=time]",
        old_link="?kernel=tiled_attention",
        old_view=("tiled_attention",),
    ),
    "barriers": Widget(
        page="posts/warp_specialization/",
        box=".am-barriers",
        ready="[data-event]",
        control="[data-event=producer]",
        key="Enter",
        data="barriers_walks",
        nonsense='{"walks": []}',
        stays="xpath=ancestor::figure//figcaption",
    ),
    "checkpoint_map": Widget(
        page="posts/language_model/",
        box=".am-history",
        ready="pre span",
        key="Home",
        data="maps_steps",
        nonsense='{"text": "a", "steps": [0], "heads": []}',
        target=24,
    ),
}


def is_built(page, name):
    """The widget's box, once its script has built it."""
    box = page.locator(WIDGETS[name].box).first
    box.scroll_into_view_if_needed()
    box.locator(WIDGETS[name].ready).first.wait_for()
    return box
