"""What GPUs have, as their makers state it, and how much of a kernel fits there at once.

The one place for such limits: compiled.py refuses by them, the page of your_gpu shows them. A value
that no maker's document states is None, never a guess.
"""

from dataclasses import dataclass

KIB = 1024
CUDA_GUIDE = (
    "CUDA C++ Programming Guide, technical specifications per compute capability",
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#compute-capabilities",
)
CUDA_TRAITS = (
    "the same as code, cuda::arch_traits",
    "https://github.com/NVIDIA/cccl/blob/main/libcudacxx/include/cuda/__device/arch_traits.h",
)
AMD_SPECIFICATIONS = (
    "ROCm documentation, GPU specifications",
    "https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html",
)
LLVM = ("LLVM, user guide for the AMDGPU backend", "https://llvm.org/docs/AMDGPUUsage.html")


@dataclass(frozen=True)
class Architecture:
    """Limits of one multiprocessor (AMD: compute unit), the same for every card of a target.

    NVIDIA: CUDA_GUIDE and CUDA_TRAITS, units of allocation from CUDA's cuda_occupancy.h.
    AMD: AMD_SPECIFICATIONS and LLVM.
    """

    shared_block: int  # bytes of shared memory that one program may have
    shared_sm: int  # bytes that all programs of a multiprocessor share
    warps: int  # resident at once
    programs: int  # resident at once
    lanes: int = 32  # threads of a warp
    registers: int = 65_536  # 32 bits each
    widest: int = 255  # registers of one thread
    register_unit: int = 256  # registers are given to a warp in multiples of this
    shared_unit: int = 128  # bytes: shared memory is given to a program in multiples of this
    reserved: int = KIB  # bytes of shared memory that the driver takes for each program


# In the order of their capability, AMD last.
ARCHITECTURES = {
    "sm_75": Architecture(64 * KIB, 64 * KIB, 32, 16, shared_unit=256, reserved=0),
    "sm_80": Architecture(163 * KIB, 164 * KIB, 64, 32),
    "sm_86": Architecture(99 * KIB, 100 * KIB, 48, 16),
    "sm_87": Architecture(163 * KIB, 164 * KIB, 48, 16),
    "sm_89": Architecture(99 * KIB, 100 * KIB, 48, 24),
    "sm_90": Architecture(227 * KIB, 228 * KIB, 64, 32),
    "sm_100": Architecture(227 * KIB, 228 * KIB, 64, 32),
    "sm_103": Architecture(227 * KIB, 228 * KIB, 64, 32),
    "sm_120": Architecture(99 * KIB, 100 * KIB, 48, 24),
    "sm_121": Architecture(99 * KIB, 100 * KIB, 48, 24),
    # 512 KiB of vector registers; eight waves of 64 on each of four SIMD units.
    "gfx942": Architecture(
        64 * KIB, 64 * KIB, 32, 32, lanes=64, registers=131_072, widest=512, register_unit=512,
        reserved=0,
    ),
}  # fmt: skip
PARTS = 4  # of a multiprocessor: each has a quarter of the registers and of the warps


@dataclass(frozen=True)
class Card:
    """A GPU that one can buy or rent. Rates are the makers' peaks, dense (no sparsity)."""

    name: str
    target: str
    multiprocessors: int | None
    memory_gb: int
    gb_per_s: int | None  # 1e9 bytes a second
    tensor_tflops: float | None  # 16-bit matrix products with float32 sums
    fp32_tflops: float | None  # ordinary float32 arithmetic
    sources: tuple[tuple[str, str], ...]

    @property
    def capability(self) -> str:
        """As CUDA calls it, "9.0"; AMD's own name of the target otherwise."""
        digits = self.target.removeprefix("sm_")
        return digits if digits == self.target else f"{digits[:-1]}.{digits[-1]}"


AMPERE = (
    "Ampere white paper",
    "https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf",
)
ADA = (
    "Ada white paper",
    "https://images.nvidia.com/aem-dam/Solutions/Data-Center/l4/nvidia-ada-gpu-architecture-whitepaper-v2.1.pdf",
)
TURING = (
    "Turing white paper",
    "https://images.nvidia.com/aem-dam/en-zz/Solutions/design-visualization/technologies/turing-architecture/NVIDIA-Turing-Architecture-Whitepaper.pdf",
)
HOPPER = (
    "Hopper white paper",
    "https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper",
)
DATA_CENTER = "https://www.nvidia.com/en-us/data-center"
# Where a maker states a rate with sparsity only, half of it; where for a board of eight, an eighth.
CARDS = (
    Card("T4", "sm_75", 40, 16, 300, 65, 8.1,
         (("product page", f"{DATA_CENTER}/tesla-t4/"), TURING)),
    Card("A100 40 GB", "sm_80", 108, 40, 1555, 312, 19.5, (AMPERE,)),
    Card("A100 80 GB", "sm_80", 108, 80, 2039, 312, 19.5,
         (("product page", f"{DATA_CENTER}/a100/"), AMPERE)),
    Card("L4", "sm_89", 58, 24, 300, 121, 30.3,
         (("product page", f"{DATA_CENTER}/l4/"), ADA)),
    Card("RTX 4090", "sm_89", 128, 24, 1008, 165.2, 82.6, (ADA,)),
    Card("H100", "sm_90", 132, 80, 3350, 989.4, 66.9,
         (("product page", f"{DATA_CENTER}/h100/"), HOPPER)),
    # The product page does not state the multiprocessors; the device does, in this site's results.
    Card("H200", "sm_90", 132, 141, 4800, 989.5, 67,
         (("product page", f"{DATA_CENTER}/h200/"),)),
    Card("B200", "sm_100", None, 180, 8000, 2250, 75,
         (("HGX, product page", f"{DATA_CENTER}/hgx/"),
          ("DGX B200 user guide",
           "https://docs.nvidia.com/dgx/dgxb200-user-guide/introduction-to-dgxb200.html"))),
    Card("MI300X", "gfx942", 304, 192, 5300, 1307.4, 163.4,
         (("product page",
           "https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html"),)),
)  # fmt: skip


def programs_at_once(
    target: str, registers: int, num_warps: int, shared_bytes: int
) -> tuple[int, str]:
    """Programs of a kernel that one multiprocessor holds at once, and what allows no more of them.

    registers are those of a thread, shared_bytes those of a program; 0 if not even one fits.
    Source: CUDA's cuda_occupancy.h for NVIDIA, LLVM for AMD; both give registers warp by warp, in
    each quarter of a multiprocessor.
    """
    limits = ARCHITECTURES[target]
    per_warp = _up(registers * limits.lanes, limits.register_unit)
    warps = PARTS * (limits.registers // PARTS // max(per_warp, 1))
    shared = _up(shared_bytes + limits.reserved, limits.shared_unit)
    allowed = {
        "registers": warps // num_warps,
        "shared memory": limits.shared_sm // max(shared, 1),
        "warps": limits.warps // num_warps,
        "programs": limits.programs,
    }
    reason = min(allowed, key=lambda name: allowed[name])
    fits = registers <= limits.widest and shared_bytes <= limits.shared_block
    # A launch is checked as if its warps filled all quarters alike.
    fits = fits and _up(num_warps, PARTS) * per_warp <= limits.registers
    return (allowed[reason] if fits else 0), reason


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
