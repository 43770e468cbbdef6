"""The search in the built site: its own script over its own index, asked as readers ask."""

from fnmatch import fnmatch

import pytest

from snippets._site.browser import PHONE
from tests.floors import some

pytest_plugins = ["tests.browser.browser"]
pytestmark = pytest.mark.browser

# What a reader types, misspelled and in signs too, and the sections that answer it: a page, and an
# id on it. Which they are was decided before anything was looked up.
QUESTIONS = {
    "why sqrt d": "attention_weights#why-sqrt-d",
    "bank conflict": "warp_specialization#layouts",
    "online softmax": "tiled_attention tiled_attention#derivation glossary#online-softmax",
    "TMA descriptor alignment": "errors#base-must-be-16*",
    "kv cache": "decode_attention decode_attention#cache glossary#kv-cache",
    "softmax overflow": "errors#softmax-overflow*",
    "paged attention": "decode_attention#pages glossary#page-table",
    "occupancy registers spill": "latency_hiding#occupancy vectorized_attention#spills",
    "cudnn faster": "flash_attention#clock hopper_attention#clock claims#cudnn*",
    "how to benchmark gpu kernel": "method method#times method#regimes find_the_bottleneck#host",
    "autotune": "tile_sizes tile_sizes#table glossary#autotuning",
    "wgmma": "warp_specialization#roles warp_specialization#step-one glossary#wgmma",
    "ring atention multi gpu": "ring_attention ring_attention#ring ring_attention#use",
    "logsumexp": "glossary#logsumexp attention_memory#fused flash_backward#formulas",
    "illegal memory access": "errors#cuda-error-an-illegal* errors#wrong-or-an-illegal*",
    "dropout": "transformers#refused",
    "NaN causal mask": "errors#nan-in-rows* masks#hidden-rows",
    "triton out of resource shared memory": "errors#out-of-resource*",
    "GQA": "decode_attention#groups glossary#gqa",
    "backward dq atomic": "hopper_backward#writer flash_backward#dq",
    "flash atention": "flash_attention glossary#flashattention",
    "tensor core accumulate precision": "flash_attention#two-lines errors#float32-* glossary#tf32",
    "sliding window": "masks_and_packing#window masks_and_packing",
    "attention sink": "masks_and_packing#sink",
    "varlen cu_seqlens": "masks_and_packing#packed",
    "batch invariant": "same_bits same_bits#* decode_attention#invariance glossary#batch-invariant",
    "install": "*install* index#how-do-i-measure-my-card",
    "num_warps num_stages": "tile_sizes#t* flash_attention#steps basic_attention#num-warps",
    "roofline": "glossary#roofline find_the_bottleneck#ceilings attention_memory#memory-bound",
    "fp8": "glossary#eight-bits",
    "quantization": "glossary#eight-bits",
    "what is attention": "attention_weights attention_weights#weighted-average",
    "query key value": "attention_weights attention_weights#weighted-average glossary#query",
    "multi head attention pytorch": "multi_head_attention multi_head_attention#head",
    "view size is not compatible after transpose": "*#view-after-transpose errors#right-for*",
    "attention mask true or false": "masks masks#conventions",
    "causal mask bottom right": "errors#wrong-with-fewer* masks#causal* attention_weights#causal*",
    "cuda out of memory long sequence": "errors#cuda-out* *#does-it-fit attention_memory",
    "how much vram do i need": "attention_memory attention_memory#does-it-fit",
    "coalesing": "coalescing coalescing#sectors coalescing#attention glossary#coalescing",
    "memory bound or compute bound": "*#memory-bound *#ceilings claims#attention_is*",
    "cuda graph": "host_time host_time#requirements",
    "kernel launch overhead": "host_time *#one-launch *#launch-bound *#launches *#kernel-launch",
    "torch.compile custom op": "pytorch_op pytorch_op#registering pytorch_op#triton-op",
    "which sdpa backend": "sdpa_backends sdpa_backends#what-it-takes",
    "No available kernel": "sdpa_backends#refused",
    "flash attention 3 vs cudnn": "hopper_attention#clock flash_attention#clock scoreboard#kernels",
    "warp specialisation": "warp_specialization warp_specialization#roles glossary#warp-special*",
    "softmax gradient formula": "flash_backward#formulas",
    "arange power of 2": "errors#aranges-range*",
    "tl.dot at least 16": "errors#input-shapes*",
    "first call slow compile": "errors#the-first-call*",
    "run triton without gpu": "install#cpu errors#cpu-tensors* glossary#interpreter",
    "bfloat16 wrong on cpu": "errors#bfloat16*",
    "flash decoding": "decode_attention decode_attention#splits glossary#split-kv",
    "different output temperature 0": "decode_attention#invariance",
    "context parallelism": "ring_attention ring_attention#ring",
    "train gpt": "language_model language_model#train language_model#model",
    "huggingface custom attention": "transformers transformers#function",
    "rtx 4090": "your_gpu your_gpu#cards your_gpu#instructions your_gpu#card",
    "batch_invariant": "*#invariance *#batch-invariant launchers#*.decode_attention",
    "cache_append": "launchers#*.cache_append",
    "hopper_backward": "launchers#*.hopper_backward hopper_backward",
    "max registers per thread": "glossary#register vectorized_attention#spills",
    "hbm bandwith": "attention_memory#hierarchy glossary#hbm glossary#bandwidth",
    "nsight compute": "find_the_bottleneck#nsight",
    "why is my kernel slow": "find_the_bottleneck errors#it-is-slow basic_attention",
    "why is my kernel slower than sdpa": "find_the_bottleneck *#it-is-slow",
    "my attention kernel gives wrong results": "diagnose diagnose#run errors errors#the-numbers*",
    "speculative decoding": "glossary#speculative-decoding",
    "head dim 80": "errors#wrong-result-at-head* odd_head_dimensions *#own-kernel",
    "int32 index overflow": "errors#wrong-or-an-illegal*",
    "flush l2 cache": "method#times glossary#l2",
    "transpose kernel": "composed_attention#transpose launchers#*.transpose",
    "register spil": "vectorized_attention#spills glossary#spill",
    "logsumepx": "glossary#logsumexp attention_memory#fused flash_backward#formulas",
    "√d": "attention_weights#why-sqrt-d",
    "triton exercises": "playground playground#the-ladder",
    "misaligned address": "errors#base-must-be-16*",
    "warp divergence": "glossary#warp",
    "cross attention": "glossary#cross-attention",
    "sotfmax overflow": "errors#softmax-overflow*",
    "kernle launch": "host_time host_time#one-launch glossary#kernel-launch",
    "RuntimeError: CUDA error: misaligned address": "errors#base-must-be-16*",
    "low occupancy": "latency_hiding#occupancy *#occupancy",
    "flash attention output different from pytorch": "errors#the-numbers* method#correct diagnose",
    "max diff 1e-3 fp16": "errors#the-numbers* method#correct scoreboard#errors",
    "flash_attn_varlen_func": "masks_and_packing#packed glossary#packed-sequences",
    "document masking": "masks_and_packing#packed glossary#packed-sequences",
    "key_padding_mask": "masks masks#conventions masks_and_packing#packed",
    "No module named 'triton'": "install install#*",
    "triton windows": "install install#*",
    "Pointer argument cannot be accessed from Triton (cpu tensor?)": "errors#cpu-tensors*",
    "print inside triton kernel": "glossary#interpreter errors#cpu-tensors* install#cpu",
    "torch.cuda.synchronize timing": "method#times find_the_bottleneck#host *#launch-bound",
    "gpu clock throttling": "method#regimes method#times scoreboard#regimes",
    "how to calculate tflops": "method#counting glossary#flop",
    "ERR_NVGPUCTRPERM": "find_the_bottleneck#nsight",
    "128-bit loads": "vectorized_attention#steps *#instructions coalescing#sectors",
    "mbarrier deadlock": "warp_specialization#barriers *#protocol hopper_backward#tests",
    "pingpong scheduling": "hopper_attention#no-gain",
    "setmaxnreg": "hopper_attention#three-consumers warp_specialization#roles",
    "multi query attention": "glossary#gqa decode_attention#groups",
    "gpu underutilized small batch": "decode_attention decode_attention#splits *#waves",
    "zigzag load balance": "ring_attention#zigzag",
    "flex attention": "*#price masks_and_packing#window flash_attention#when*",
    "bibtex": "cite",
    "Result does not match pytorch implementation": "errors#the-numbers* *#correct diagnose",
    "measure on my gpu": "method#again index#how-do-i-measure-my-card",
    # What the site does not cover: the entry that says so.
    "fp8 training": "glossary#eight-bits",
    "cp.async": "glossary#cuda",
    "blackwell": "glossary#other-gpus",
    "amd rocm": "glossary#other-gpus",
    "alibi bias": "masks_and_packing#scores glossary#other-masks",
    "prefix caching": "glossary#prefix-caching",
    "linear attention mamba": "glossary#other-attention",
    "nvfp4 attention": "glossary#eight-bits",
    "apple silicon mps": "glossary#other-machines",
}
ENOUGH = 0.95  # of them have such a section among the first three
LESS = "playground* *#exercise *#next *#read-on"  # exercises, sources, links


def ask(page, words):
    """Type into the search box; returns the addresses of what it answers, the best first."""
    page.locator(".md-search__input").fill(words)
    done = "words => document.querySelector('#am-hits').dataset.question === words"
    page.wait_for_function(done, arg=words)
    return page.evaluate("[...document.querySelectorAll('#am-hits a')].map(link => link.href)")


def right(found, wanted):
    """Those of the sections found that are among the wanted ones."""
    return [name for name in found if any(fnmatch(name, one) for one in wanted.split())]


@pytest.fixture
def searched(open_page, site):
    """A page whose search box is open."""
    page = open_page(at=site + "reference/glossary/", until="networkidle")
    page.keyboard.press("/")
    return page


def test_nineteen_of_twenty_questions_find_their_section(searched, site):
    def name(address):
        page, mark, anchor = address.removeprefix(site).partition("#")
        return (page.rstrip("/").rpartition("/")[2] or "index") + mark + anchor

    answers = {words: [name(url) for url in ask(searched, words)[:3]] for words in QUESTIONS}
    missed = {w: answers[w] for w, wanted in QUESTIONS.items() if not right(answers[w], wanted)}
    print(f"{len(missed)} of {len(QUESTIONS)} missed:", *missed.items(), sep="\n  ")
    assert len(missed) <= (1 - ENOUGH) * len(some(QUESTIONS, 70)), missed
    others = [*list(QUESTIONS.values())[1:], QUESTIONS["why sqrt d"]]  # a fault: each another's
    found = [w for w, wanted in zip(QUESTIONS, others, strict=True) if right(answers[w], wanted)]
    assert len(found) < 0.3 * len(QUESTIONS), "anything would be right"
    less = {w for w in QUESTIONS if right(answers[w][:1], LESS)}
    assert less & {*missed} == set(), "found before what answers"


@pytest.mark.parametrize("words", ["quantization", "amd rocm", "sparse attention"])
def test_what_is_not_covered_says_so_and_what_comes_nearest(searched, words):
    ask(searched, words)
    above = searched.locator(".am-hit small").all_inner_texts()
    assert above[0] == "Not covered here"
    assert above[1].startswith("Nearest: ")
    assert not [text for text in above[2:] if "earest" in text]
    assert "Not covered here" in searched.locator(".md-search-result__meta").inner_text()
    ask(searched, "wave quantization")
    assert "overed" not in searched.locator(".md-search-result__meta").inner_text()


def test_a_word_that_no_page_has_is_named_and_the_rest_is_answered(searched):
    said = searched.locator(".md-search-result__meta")
    assert len(ask(searched, "zzqxw warps ?")) > 3
    assert said.inner_text().startswith("No page has “zzqxw”. The best")
    assert ask(searched, "zzqxw") == []
    assert said.inner_text().startswith("No page has “zzqxw”. Try")


def test_an_answer_shows_why_and_the_keyboard_leads_there(searched):
    first, second, *_ = ask(searched, "tensor cores")
    for hit in some(searched.locator(".am-hit").all()):
        assert 20 < len(hit.locator("span").inner_text()) < 300, "a line, and no block of code"
    assert searched.locator(".am-hit mark").count() > 5
    searched.keyboard.press("ArrowDown")
    searched.keyboard.press("ArrowDown")
    assert searched.evaluate("document.activeElement.href") == second
    searched.keyboard.press("ArrowUp")
    searched.keyboard.press("Enter")
    searched.wait_for_url(first)
    searched.locator("#__search:not(:checked)").wait_for(state="attached")
    ask(searched, "tensor")
    searched.keyboard.press("Escape")
    searched.locator("#__search:not(:checked)").wait_for(state="attached")


def test_a_keyboard_that_leaves_the_search_closes_it(searched):
    ask(searched, "tensor cores")
    searched.keyboard.press("Tab")
    assert searched.locator("#__search:checked").count(), "its results belong to it"
    searched.locator("#am-hits a").last.focus()
    searched.keyboard.press("Tab")
    searched.locator("#__search:not(:checked)").wait_for(state="attached")


def test_on_a_phone_an_answer_opens_at_its_section(open_page, site):
    page = open_page(PHONE, at=site, until="networkidle", has_touch=True, is_mobile=True)
    page.evaluate("scrollTo(0, 1500)")
    page.locator("label[for=__search]:visible").first.tap()
    page.locator("[data-md-scrolllock]").wait_for()
    address = next(x for x in ask(page, "varlen cu_seqlens") if x.endswith("#packed"))
    page.locator(f"#am-hits a[href='{address}']").tap()
    page.wait_for_url(address)
    page.wait_for_timeout(1000)  # the theme's scroll, back to where the page was
    assert 0 <= page.locator("#packed").bounding_box()["y"] < PHONE["height"] / 2
