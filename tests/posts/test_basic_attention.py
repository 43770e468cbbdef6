"""basic_attention against float64, at awkward sizes, strides and scores; and what it refuses."""

import pytest
import torch

from snippets._lab.judge.oracle import assert_attention, make_qkv
from snippets._lab.measure.session import Lab
from snippets._lab.probe.loops import KINDS, OTHERS, loops
from snippets._lab.results import store
from snippets._lab.rooms import DATA
from snippets.basic_attention import bench, exercise
from snippets.basic_attention.kernel import basic_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
AWKWARD = [1, 2, 63, 64, 65, 127, 129]
# The interpreter takes a millisecond a key for each query: there the awkward sizes go into N.
QUERIES = AWKWARD if ON_GPU else [3]


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", AWKWARD)
@pytest.mark.parametrize("M", QUERIES)
def test_equals_float64(M, N, dtype):
    q, k, v = make_qkv(M=M, N=N, D=40, dtype=dtype, device=DEVICE, seed=1)
    assert_attention(basic_attention(q, k, v), q, k, v)


@pytest.mark.numerical
@pytest.mark.parametrize("M", [1, 2, 3])
def test_exercise_serves_two_queries(M):
    q, k, v = make_qkv(2, M=M, N=9, D=12, device=DEVICE)
    assert_attention(exercise.basic_attention(q, k, v), q, k, v)


# An ablation removes one thing: seen in the loops' machine code, in the cells that were timed.

REDUCTION = {"shuffles", "barriers", "shared memory", "arithmetic"}  # of a sum over a tile
GONE = {  # what is left out → (what the loop over the keys lacks, what the loop over values lacks)
    "loads": ({"loads"}, {"loads"}),
    "the sum of a dot product": (REDUCTION, set()),
    "writing slots": ({"selects"}, set()),
    "reading slots": (set(), REDUCTION | {"selects"}),  # a slot is read by a select and a sum
}
ABLATION = ("basic_attention", "ablation")
CELL = ("dtype", "D", "heads", "N")


def lacking(whole, part):
    """The kinds that a loop has none of any more, but for the product that a sum began with.

    The others must be as they were; addresses and moves may be a few more or fewer.
    """
    gone = {kind for kind in KINDS if whole[kind] > part[kind]}
    assert not [kind for kind in KINDS if whole[kind] < part[kind]], (whole, part)
    assert all(part[kind] == (kind == "arithmetic") for kind in gone), (whole, part)
    assert part[OTHERS] - whole[OTHERS] < sum(whole[kind] for kind in [*KINDS, OTHERS]) / 6
    return gone


def assert_one_thing_is_gone(rows):
    assert {row["without"] for row in rows} == {"nothing", *GONE}
    whole = {(*[r[x] for x in CELL], r["loop"]): r for r in rows if r["without"] == "nothing"}
    for row in rows:
        if row["without"] != "nothing":
            expected = GONE[row["without"]][row["loop"] == "values"]
            found = lacking(whole[(*[row[x] for x in CELL], row["loop"])], row)
            assert found == expected, row


def test_the_timed_ablation_removed_one_thing():
    """What the page says of a part's cost rests on both results."""
    timed, *others = (x for x in store.scan(DATA) if (x.post, x.result) == ABLATION)
    counted = store.read(store.path_of("compiler/sm_90", "basic_attention", "left"))
    assert_one_thing_is_gone(counted.rows)
    cells = {tuple(row[x] for x in CELL) for row in counted.rows}
    for result in [timed, *others]:
        assert {tuple(row[x] for x in CELL) for row in result.rows} == cells
        assert result.versions["triton"] == counted.versions["triton"]
        parts = [x.code["basic_attention/bench.py"]["PARTS"] for x in (result, counted)]
        assert parts[0] == parts[1], "what was timed is not what was counted: measure it again"


def test_every_number_of_warps_is_a_variant(monkeypatch):
    def called(lab, case, names, variants):
        q, k, v = lab.qkv({**case, "N": 4})
        for name, call in variants.items():
            torch.testing.assert_close(call(q, k, v), basic_attention(q, k, v))
            yield {"implementation": name}

    monkeypatch.setattr(Lab, "time_attention", called)
    rows = list(bench.warps(Lab("interpreter" if DEVICE == "cpu" else "gpu")))
    assert {row["num_warps"] for row in rows} == {1, 2, 4, 8}


@pytest.fixture(params=["installed", "timed"])
def lab(request):
    lab = Lab("compiler", "sm_90")
    with lab.compiler:
        if request.param == "timed":
            lab.compiler.version = store.timed_with("triton")
        yield lab


@pytest.mark.compiler
def test_an_ablation_removes_one_thing(lab, monkeypatch):
    """With the compiler that is installed and with the one whose kernels were timed."""
    monkeypatch.setitem(bench.TAKEN_APART, "heads", [1])
    monkeypatch.setitem(bench.TAKEN_APART, "N", [256, 1024])
    assert_one_thing_is_gone(list(bench.left(lab)))


@pytest.mark.compiler
def test_an_ablation_whose_loop_is_unrolled_is_refused(lab, monkeypatch):
    monkeypatch.setitem(bench.TAKEN_APART, "heads", [1])
    monkeypatch.setitem(bench.TAKEN_APART, "N", [256])
    pragma = '.pragma "nounroll"; '
    freed = [(old, new.replace(pragma, "")) for old, new in bench.PARTS["reading slots"]]
    monkeypatch.setitem(bench.PARTS, "loads", freed)
    with pytest.raises(ValueError, match="4 loads an iteration: it is unrolled"):
        list(bench.left(lab))


def test_loops_are_found_between_an_instruction_and_a_branch_back():
    sass = """
        /*0000*/                   LDG.E R6, desc[UR12][R4.64] ;
        /*0010*/              @!P1 LDG.E R6, desc[UR12][R4.64] ;  /* 0x0000000c04069981 */
        /*0020*/                   SHFL.BFLY PT, R18, R17, 0x8, 0x1f ;
        /*0030*/                   FSEL R7, R6, R7, !P3 ;
        /*0040*/               @P2 BRA 0x60 ;
        /*0050*/                   I2FP.F32.S32 R1, R2 ;
        /*0060*/               @P0 BRA 0x10 ;
        /*0070*/                   EXIT ;
        /*0080*/                   BRA 0x80 ;
        /*0090*/                   BRA 0x10 ;
    """
    (loop,) = loops(sass)
    one = {"loads", "shuffles", "selects", "arithmetic"}
    assert loop == {**{kind: int(kind in one) for kind in KINDS}, OTHERS: 2}
    assert loops("/*0000*/ EXIT ;") == []
