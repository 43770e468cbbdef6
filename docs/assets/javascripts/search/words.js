/* What a text is cut into, in the index and in a question alike. A sign is the word that a reader would type for it;
   a name of code is itself and its parts; the forms of a word are one. */
const SIGNS = {
  "√": " sqrt ", "∞": " infinity ", "ᵀ": " transpose ", "∑": " sum ", "Σ": " sum ", "∂": " gradient ", "λ": " lambda ",
};
const SIGN = new RegExp(`[${Object.keys(SIGNS).join("")}]`, "g");
const WORD = /[\p{L}\p{N}]+(?:[_.\-'’][\p{L}\p{N}]+)*/gu;
const HUMP = /(?<=\p{Ll})(?=\p{Lu}\p{Ll})/gu;
const ENDINGS = [
  [/['’]s$/, ""], [/(?<=\p{L}{2})ies$/u, "y"], [/(?<=\p{L}{2}[^\W_aeius])s$|(?<=\p{L}{2}e)s$/u, ""],
  [/(?<=\p{L}{3})(?:ing|ed|e)$/u, ""],
];

const stem = (word) => ENDINGS.reduce((left, [ending, instead]) => left.replace(ending, instead), word);

export function wordsOf(text) {
  const found = [];
  for (const [word] of text.replace(SIGN, (sign) => SIGNS[sign]).replace(HUMP, "-").toLowerCase().matchAll(WORD)) {
    const parts = word.split(/[_.-]/);
    found.push(stem(word));
    if (parts.length > 1) found.push(...parts.map(stem));
    if (parts.length > 1 && word.includes("-")) found.push(stem(parts.join(""))); // log-sum-exp
  }
  return found.filter(Boolean);
}

const EMPTY = new Set(wordsOf(`
  a an and any are as at be but by can do does for from get give got has have how i if in into is it its me my
  need not of on or per should so than that the then there this to too use vs was we what when where which why will
  with you your`));
/* What people type, and what pages say. */
const SAID = {
  "atomic": "add", "bf16": "bfloat16", "bwd": "backward", "derivative": "gradient", "dim": "dimension",
  "fa": "flashattention", "fp16": "float16", "fp32": "float32", "fwd": "forward", "gqa": "grouped",
  "huggingface": "hugging transformers", "index": "indices", "inf": "infinity", "int32": "32-bit", "int64": "64-bit",
  "kv": "keys", "lse": "logsumexp", "max": "most maximum", "mha": "multi-head",
  "misaligned": "aligned", "ncu": "nsight", "oom": "memory",
  "overflow": "large nan", "precision": "tf32 rounding", "rope": "rotary", "sdpa": "scaled_dot_product_attention",
  "seqlen": "length", "sm": "multiprocessor", "smem": "shared", "sqrt": "root", "vram": "memory",
  "wgmma": "warpgroup",
};
const ALSO = new Map(Object.entries(SAID).map(([word, others]) => [stem(word), others.split(" ").map(stem)]));

/* The words of a question that count, unless none does. */
export function askedFor(question) {
  const words = [...new Set(wordsOf(question))];
  const telling = words.filter((word) => !EMPTY.has(word));
  return telling.length ? telling : words;
}

export const alsoSaid = (word) => ALSO.get(word) ?? [];
