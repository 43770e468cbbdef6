/* What a text is cut into, in the index and in a question alike. A sign is the word that a reader would type for it;
   a name of code is itself and its parts; the forms of a word are one. */
const SIGNS = {
  "√": " sqrt ", "∞": " infinity ", "ᵀ": " transpose ", "∑": " sum ", "Σ": " sum ", "∂": " gradient ", "λ": " lambda ",
};
const SIGN = new RegExp(`[${Object.keys(SIGNS).join("")}]`, "g");
const WORD = /[\p{L}\p{N}]+(?:[_.\-'’][\p{L}\p{N}]+)*/gu;
const HUMP = /(?<=\p{Ll})(?=\p{Lu}\p{Ll})/gu;
const ENDINGS = [
  [/['’]s$/, ""], [/(?<=\p{L}{2})ies$/u, "y"], [/(?<=\p{L}[^\W_aeius])s$|(?<=\p{L}{2}e)s$/u, ""],
  [/(?<=\p{L}{4})is(?=(?:e|ed|ing|ation)$)/u, "iz"], [/(?<=\p{L}{4})(?:ment|ly)$/u, ""],
  [/(?<=\p{L}{3})(?:ing|ed|e)$/u, ""], [/(?<=\p{L}{4})at(?:ion)?$|(?<=\p{L}{4}[st])ion$/u, ""], [/([bdgmnprt])\1$/, "$1"],
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
  a an and any are as at be before but by can do does each every for from get give got has have how i if in inside
  into is it its me my need not of on or per should so than that the then there this to too use vs was we what when
  where which why will with you your about best correctly help just like want way`));
/* What people type, and what pages say. */
const SAID = `
  accuracy: precision rounding error, allclose: tolerance wrong, async: asynchronous copy, atol: tolerance,
  atomic: add, attn: attention, backprop: backward gradient, bench: times, benchmark: times, bf16: bfloat16,
  block: tile program, boundary: bounds past, bwd: backward, calculate: count, cast: rounds, crash: illegal,
  cta: program, cudagraph: graph, custom: own, deadlock: barriers waits, derivative: gradient, deterministic: bits,
  diff: differ difference wrong, different: differ wrong, dim: dimension, discrepancy: differ wrong, e4m3: float8,
  fa: flashattention, fp16: float16, fp32: float32, fp64: float64, fwd: forward, gemm: matmul product, gpu: card,
  gqa: grouped, grad: gradient, half: float16, hang: barriers waits, hdim: dimension,
  huggingface: hugging transformers, incorrect: wrong, index: indices, inf: infinity, int32: 32-bit, int64: 64-bit,
  kv: keys, lse: logsumexp, match: differ, max: most maximum largest, mha: multi-head, misaligned: aligned,
  mismatch: wrong differ, mqa: grouped, mufu: exponentials, mxfp8: fp8, ncu: nsight, nondeterministic: bits atomics,
  nvfp4: fp4, oob: bounds, oom: memory, overflow: large nan, overhead: launch host, peak: ceiling,
  pipelining: num_stages, precision: tf32 rounding, prefetch: num_stages, profile: nsight, ptx: instructions,
  race: barriers order, reference: float64 yardstick, reproducible: bits, rope: rotary, rtol: tolerance,
  sass: instructions, sdpa: scaled_dot_product_attention, seqlen: length, sfu: exponentials, slower: slow bottleneck, sm: multiprocessor,
  smem: shared, softcap: cap, speedup: faster, sqrt: root, sram: shared, stall: waits, swa: window,
  tflops: flops clock, throttling: power, throughput: bandwidth, underutilized: idle, unsupported: refused,
  utilization: occupancy idle, variable: varlen packed, vram: memory, wgmma: warpgroup, wrapper: op`;
const ALSO = new Map(SAID.split(",").map((entry) => entry.trim().split(/:? /).map(stem)).map(([word, ...said]) => [word, said]));

/* The words of a question that count, unless none does. */
export function askedFor(question) {
  const words = [...new Set(wordsOf(question))];
  const telling = words.filter((word) => !EMPTY.has(word));
  return telling.length ? telling : words;
}

export const alsoSaid = (word) => ALSO.get(word) ?? [];
