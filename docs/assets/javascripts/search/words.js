/* What a text is cut into, in the index and in a question alike. A sign is the word that a reader would type for it;
   a name of code is itself and its parts; a word and its plural are one. */
const SIGNS = {
  "√": " sqrt ", "∞": " infinity ", "ᵀ": " transpose ", "∑": " sum ", "Σ": " sum ", "∂": " gradient ", "λ": " lambda ",
};
const SIGN = new RegExp(`[${Object.keys(SIGNS).join("")}]`, "g");
const WORD = /[\p{L}\p{N}]+(?:[_.\-'’][\p{L}\p{N}]+)*/gu;
const PLURAL = /(?<=\p{L}{2}[^\W_aeius])s$|(?<=\p{L}{2}e)s$/u;

const single = (word) => word.replace(/['’]s$/, "").replace(PLURAL, "");

export function wordsOf(text) {
  const found = [];
  for (const [word] of text.replace(SIGN, (sign) => SIGNS[sign]).toLowerCase().matchAll(WORD)) {
    const parts = word.split(/[_.-]/);
    found.push(single(word));
    if (parts.length > 1) found.push(...parts.map(single));
    if (parts.length > 1 && word.includes("-")) found.push(single(parts.join(""))); // log-sum-exp
  }
  return found.filter(Boolean);
}

const EMPTY = new Set(("a an and are as at be but by can do does for from get got has have how i if in into is it its my of on or "
  + "so than that the then this to too was what when where which why with you your").split(" "));
/* What people type, and what pages say. */
const ALSO = {
  "bf16": ["bfloat16"], "bwd": ["backward"], "dim": ["dimension"], "fa": ["flashattention"], "fp16": ["float16"],
  "fp32": ["float32"], "fwd": ["forward"], "gqa": ["grouped"], "inf": ["infinity"], "lse": ["logsumexp"],
  "mha": ["multi-head"], "oom": ["memory"], "overflow": ["large", "nan"], "sdpa": ["scaled_dot_product_attention"],
  "seqlen": ["length"], "sm": ["multiprocessor"], "smem": ["shared"], "sqrt": ["root"], "wgmma": ["warpgroup"],
};

/* The words of a question that count, unless none does. */
export function askedFor(question) {
  const words = [...new Set(wordsOf(question))];
  const telling = words.filter((word) => !EMPTY.has(word));
  return telling.length ? telling : words;
}

export const alsoSaid = (word) => ALSO[word] ?? [];
