/* How a kernel from elsewhere is launched on the recorded problems, as far as names and its text tell. Each parameter
   gets a field with an expression, which a reader may change; where nothing is known it is empty, and asked for. */
import { KernelError } from "../engine/errors.js";
import { runProblem } from "../engine/problems.js";
import { valueOf } from "./expression.js";
import { kernelsOf } from "./reading.js";

const TILE = 16; // the minimum for tl.dot

const TENSORS = [
  ["q", /^(q|quer(y|ies))$/],
  ["k", /^(k|keys?)$/],
  ["v", /^(v|values?)$/],
  ["out", /^(o|out|outputs?|y|res|results?|attn_out)$/],
];
const GRADIENT = /^(d_?o(ut)?|do|grad_?\w*|d[qkv]|delta)$/;
const BATCH = /^(b|z|bz|bs|bsz|n?_?batch(es|_size)?|num_batches)$/;
const HEADS = /^(h|hq|q_?heads|n_?heads?|heads?|num_(q_)?heads|nh)$/;
const ROLES = [ // of a number: [its expression, names]
  ["B", BATCH],
  ["H", HEADS],
  ["Hkv", /^(h_?kv|kv_?heads|n_?kv_?heads?|num_kv_heads|nkv|h_?k)$/],
  ["H // Hkv", /^(g|groups?|group_size|(n|num)_?groups|kv_group_num|q_per_kv|heads_per_kv|n_?rep|gqa)$/],
  ["M", /^(m|mq|(n_?ctx|seq_?len|len|seq|l|t|s|n)_?q|(q|query)_?(len|length|seq_?len|rows)|n(um)?_?queries|queries)$/],
  ["N", /^(n|nk|(n_?ctx|seq_?len|len|seq|l|t|s|n)_?(k|kv)|(k|kv|key)_?(len|length|seq_?len|rows)|n(um)?_?keys|keys)$/],
  ["M ", /^(n_?ctx|ctx|seq_?len|seq|length|len|l|t|s)$/], // of both
  ["D", /^(d|dh|hd|head_?dim|d_?head|head_?size|dim|d_model)$/],
  ["N - M", /^(causal_)?(offset|shift)$/],
  ["scale * 1.4426950408889634", /scale_?log2e?|log2e?_?scale/],
  ["scale", /^((sm|softmax|qk|attn)_?)?(scale|scaling)$/],
];
const BLOCK = /^(block|tile|blk|b)(_?size)?_?/;
const BLOCKS = [
  ["M", /^(m|q|queries|rows?|r|seq_?q)$/],
  ["N", /^(n|k|kv|keys|cols?|c|s|seq_?k)$/],
  ["D", /^(d|dmodel|dim|hd|h|head|head_?dim|headdim|dhead|d_head)$/],
];
const WORDS = { num_warps: "4", num_stages: "1", stage: "3 if causal else 1", mask: "True", masked: "True" };

const bare = (name) => name.toLowerCase().replaceAll(/^_+|_+$/g, "").replace(/_?(ptr|pointer|desc|base)s?$|^(p|ptr|desc)_/, "");
const roleIn = (table, name) => table.find(([, names]) => names.test(name))?.[0];

/* "stride_qm", "q_stride_m", "stride_h" → [tensor or "", the rest], or nothing. */
function strideOf(name) {
  const match = /^s_?([qkvo]_?[a-z]{1,2})$/.exec(name) ?? (/stride/.test(name) && [0, name.replace(/_?strides?_?/, "_").replaceAll(/^_|_$/g, "")]);
  if (!match) return null;
  const [, tensor, axis] = /^(?:(out|q|k|v|o)_?)?(.*)$/.exec(match[1]);
  return tensor ? [tensor === "o" ? "out" : tensor, axis] : ["", axis];
}

const isBatch = (axis) => BATCH.test(axis) || axis === "0";
const isHead = (axis) => HEADS.test(axis) || /^(1|kv_?h|h_?kv|hk|bh|hz|zh)$/.test(axis);

/* Which of the four dimensions each of a tensor's strides is of: in their order, unless their names tell another. */
function dimensions(axes) {
  const head = axes.findIndex(isHead);
  const batch = axes.findIndex((axis, i) => i !== head && isBatch(axis));
  const both = axes.length === 4 ? [batch < 0 ? 0 : batch, head < 0 ? 1 : head] : [batch, head].filter((i) => i >= 0);
  if (axes.length === 3 && !both.length) both.push(0);
  const rows = axes.map((_, i) => i).filter((i) => !both.includes(i));
  return axes.map((_, i) => {
    if (!both.includes(i)) return 2 + rows.indexOf(i);
    return both.length === 2 ? both.indexOf(i) : 1; // of heads and batches in one row
  });
}

/* The expressions of the strides, and which dimensions of each tensor they tell. */
function stridesOf(params) {
  const named = params.map(({ name }) => [name, ...(strideOf(bare(name)) ?? [])]).filter(([, tensor]) => tensor !== undefined);
  const texts = new Map();
  const told = new Map();
  for (const tensor of new Set(named.map(([, of]) => of))) {
    const group = named.filter(([, of]) => of === tensor);
    const axes = dimensions(group.map(([, , axis]) => axis));
    group.forEach(([name], i) => {
      texts.set(name, `stride(${tensor || "q"}, ${axes[i]})`);
    });
    told.set(tensor, axes);
  }
  if (told.size > 1) told.delete(""); // of something else, which is not there
  return { texts, told };
}

function tensorsOf(params) {
  const pointers = params.filter(({ read, written }) => read || written);
  const roles = new Map();
  for (const { name } of params.filter(({ constexpr }) => !constexpr)) {
    const role = roleIn(TENSORS, bare(name));
    if (role && ![...roles.values()].includes(role)) roles.set(name, role);
  }
  const left = (kind) => pointers.filter((param) => param[kind] && !roles.has(param.name) && !param.optional).map(({ name }) => name);
  const missing = TENSORS.map(([role]) => role).filter((role) => ![...roles.values()].includes(role));
  // Names that are nobody's count in their order: queries, keys, values, and what is written.
  if (missing.filter((role) => role !== "out").length === 3) left("read").slice(0, 3).forEach((name, i) => roles.set(name, "qkv"[i]));
  if (missing.includes("out") && left("written").length) roles.set(left("written")[0], "out");
  return roles;
}

/* The expression that a parameter's field begins with: "" if nobody knows. */
function guessed(param, roles, strides) {
  const name = bare(param.name);
  if (roles.has(param.name)) return roles.get(param.name);
  if (param.fallback) return "default";
  if (strides.has(param.name)) return strides.get(param.name);
  if (param.optional) return "None";
  if (param.read || param.written) return param.written ? "scratch" : "";
  if (Object.hasOwn(WORDS, name)) return WORDS[name];
  if (/causal/.test(name) && !/offset/.test(name)) return "causal";
  const block = BLOCK.test(name) && (roleIn(BLOCKS, name.replace(BLOCK, "")) ?? (name.replace(BLOCK, "") ? "" : "any"));
  if (param.constexpr && block === "D") return "pow2(D)";
  if (param.constexpr && block) return block === "M" || param.stepped ? `${TILE}` : "pow2(N)";
  const role = roleIn(ROLES, name);
  if (role) return role.trim();
  return param.constexpr && (param.asked || /^(fp8|use|has|even|return|warp_spec)/.test(name)) ? "False" : "";
}

/* A problem, launched as the fields say. */
function launched(problem, { name, params }, texts, grid) {
  const [q, k] = ["q", "k"].map((input) => problem.storages.find((storage) => storage.name === input));
  const { args } = problem.launches[0]; // of the site's own kernel
  const placed = (name_) => {
    const storage = problem.storages.findIndex((one) => one.name === name_);
    const { offset, shape, strides } = problem.storages[storage];
    return { storage, offset, shape, strides };
  };
  const [B, H, M, D] = q.shape;
  const scratch = { name: "scratch", dtype: "float32", size: B * H * M };
  const flat = { offset: 0, shape: [B, H, M], strides: [H * M, M, 1] };
  const names = {
    B, H, M, D, Hkv: k.shape[1], N: k.shape[2], G: H / k.shape[1],
    scale: args.scale_log2.value * Math.LN2, causal: args.CAUSAL,
    q: placed("q"), k: placed("k"), v: placed("v"), out: problem.outputs[0],
  };
  const storages = [...problem.storages];
  const given = {};
  for (const param of params) {
    if (texts[param.name] === "default") continue;
    if (texts[param.name] === "scratch") names.scratch = { ...flat, storage: storages.push(scratch) - 1 };
    const value = valueOf(texts[param.name], names);
    names[param.name] ??= value;
    const isFraction = typeof value === "number" && !Number.isInteger(value);
    given[param.name] = isFraction ? { type: param.constexpr ? "float64" : "float32", value: param.constexpr ? value : Math.fround(value) } : value;
  }
  return { ...problem, storages, kernels: [name], names, launches: [{ kernel: name, grid: [valueOf(grid, names)].flat(), args: given }] };
}

const packed = ({ shape }) => shape.map((_, i) => shape.slice(i + 1).reduce((a, b) => a * b, 1));

/* Whether a tensor lies as its strides suppose: what none tells, side by side; heads without batches, all in one row. */
function fits({ shape, strides }, told) {
  const apart = told.includes(1) && !told.includes(0) && shape[0] > 1 && strides[0] !== shape[1] * strides[1];
  return !apart && packed({ shape }).every((stride, i) => told.includes(i) || shape[i] === 1 || (i === 0 && told.includes(1)) || strides[i] === stride);
}

/* Which problems a kernel is for. */
function taken({ params, told, roles, choices }) {
  const says = (...texts) => params.some(({ text }) => texts.some((one) => text.includes(one)));
  const lengths = new Set(params.filter(({ text }) => /^[MN]$/.test(text)).map(({ text }) => text));
  return (problem) => {
    const { q, k, v, out, M, N, D, B, H, Hkv } = problem.names;
    const shared = told.get("");
    const tensors = { q, k, v, out };
    const same = Object.values(tensors).every((tensor) => tensor.strides.join() === q.strides.join());
    return problem.name.endsWith("_half") === (choices.inputs === "float16")
      && (lengths.size > 1 || M === N)
      && (choices.lengths === "any" || !(M % TILE || N % TILE))
      && (choices.mask === "both" || problem.names.causal === (choices.mask === "causal"))
      && (choices.heads === "any" || B * H === 1)
      && (H === Hkv || says("Hkv", "G"))
      && (D === TILE || says("pow2(D)"))
      && (!/^(causal_)?scale/.test(problem.name) || says("scale"))
      && (!shared || same)
      && [...roles.values()].every((role) => !tensors[role] || fits(tensors[role], told.get(role) ?? shared ?? []));
  };
}

/* Grids that a kernel of so many axes may have, most usual first. */
function grids({ axes, params }, texts) {
  const tile = params.find((param) => param.constexpr && texts[param.name] === `${TILE}` && roleIn(BLOCKS, bare(param.name).replace(BLOCK, "")) !== "N");
  const rows = tile ? [`cdiv(M, ${tile.name})`, "M"] : ["M"];
  const orders = { 1: ["R * B * H"], 2: ["R, B * H", "B * H, R"], 3: ["R, H, B", "R, B, H", "B, H, R", "H, B, R", "B, R, H", "H, R, B"] };
  const all = rows.flatMap((row) => (orders[axes] ?? []).map((order) => order.replace("R", row)));
  return axes === 1 ? [...all, ...rows] : all;
}

/* How far from a launch that writes each number once, and nothing else; twice is better than never. */
function astray(source, problem) {
  const { error, faults } = runProblem(source, problem, { maxMilliseconds: 1000, firstNaN: false });
  return error ? Infinity : faults.reduce((sum, { kind, count }) => sum + (kind === "written_twice" ? count / 100 : count), 0);
}

/* The grid that strays least; where nothing tells heads or batches apart and one of them alone goes well, only that. */
function bestGrid(source, kernel, texts, problems, choices) {
  const tried = (name) => {
    const problem = problems.find((one) => one.name === (choices.inputs === "float16" ? `${name}_half` : name));
    let best = { score: Infinity };
    for (const grid of grids(kernel, texts)) {
      const score = astray(source, launched(problem, kernel, texts, grid));
      if (!best.grid || score < best.score) best = { grid, score };
      if (!score) break;
    }
    return best;
  };
  const many = tried("whole");
  const knows = kernel.axes > 1 || Object.values(texts).some((text) => /\b[BHG]|, [01]\)/.test(text));
  if (!many.score || knows) return { ...many, heads: "any" };
  const one = tried("tiles");
  return one.score ? { ...many, heads: "any" } : { ...one, heads: "one" };
}

const CHOICES = [ // [key, label, what there is]
  [":inputs", "numbers", ["float32", "float16"]],
  [":lengths", "M and N", ["any", "multiples of the tile"]],
  [":mask", "mask", ["none", "causal", "both"]],
  [":heads", "heads", ["any", "one"]],
];
const FEATURES = [
  ["a causal mask", ({ causal }) => causal],
  ["M ≠ N", ({ M, N }) => M !== N],
  ["lengths that fill no tile", ({ M }) => M % TILE],
  ["grouped heads", ({ H, Hkv }) => H !== Hkv],
];

/* The kernel of a text that is judged, or {reason}. */
function judgedOf(source, wanted) {
  if (/@gluon\.jit/.test(source)) return { reason: "This is Gluon, which places data in registers and warps by hand: it needs a GPU." };
  const kernels = kernelsOf(source).map((kernel) => ({ ...kernel, roles: tensorsOf(kernel.params) }));
  const whole = kernels.filter(({ roles }) => TENSORS.every(([role]) => [...roles.values()].includes(role)));
  if (!whole.length) {
    const names = kernels.map(({ name }) => `\`${name}\``).join(", ") || "none";
    return { reason: `No kernel here reads queries, keys and values and writes a result. Kernels in the text: ${names}.` };
  }
  const gradientOf = ({ params }) => params.find(({ name }) => GRADIENT.test(bare(name)));
  const kernel = whole.find(({ name }) => name === wanted) ?? whole.find((one) => !gradientOf(one)) ?? whole[0];
  const gradient = gradientOf(kernel);
  if (gradient) return { reason: `\`${kernel.name}\` works with the gradient \`${gradient.name}\`: only forward kernels are judged.` };
  const handed = kernel.params.find(({ descriptor, pointer }) => descriptor && !pointer);
  if (handed) {
    return { reason: `\`${handed.name}\` is a tensor descriptor from the launcher, which this page cannot make: make it in the kernel with \`tl.make_tensor_descriptor\`.` };
  }
  if (kernel.dtypes.has("bfloat16")) return { reason: "It casts to bfloat16, and the problems are float16 and float32." };
  return { kernel, names: whole.map(({ name }) => name) };
}

/* {reason} if the kernel cannot be judged; {kernel, fields: [{name, label, text, options?}], problems, note}. A field
   without text has to be filled in first. given: what the reader says of fields, by name. */
export function plan(source, problems, given) {
  let judged;
  try {
    judged = judgedOf(source, given.get(":kernel"));
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    return { problems: [], fields: [] }; // it is parsed again, and then its line is told
  }
  const { kernel, names, reason } = judged;
  if (reason) return { reason, fields: [] };
  const { params, roles } = kernel;
  const { texts: strides, told } = stridesOf(params);
  const texts = Object.fromEntries(params.map((param) => [param.name, given.get(param.name) ?? guessed(param, roles, strides)]));
  const flag = Object.values(texts).some((text) => /\bcausal\b/.test(text));
  const choices = {
    inputs: kernel.dtypes.has("float16") ? "float16" : "float32",
    lengths: kernel.masked ? "any" : "multiples of the tile",
    mask: flag ? "both" : kernel.causal ? "causal" : "none",
    heads: "any",
  };
  for (const [key, , options] of CHOICES) if (options.includes(given.get(key))) choices[key.slice(1)] = given.get(key);
  const found = { kernel: kernel.name, problems: [], note: "" };
  let grid = given.get(":grid") ?? "";
  try {
    if (Object.values(texts).every(Boolean)) {
      if (!grid) {
        const best = bestGrid(source, kernel, texts, problems, choices);
        grid = best.grid;
        choices.heads = best.heads;
        found.unsure = best.score > 0;
      }
      const all = problems.map((problem) => launched(problem, kernel, texts, grid));
      found.problems = all.filter(taken({ params: params.map((param) => ({ ...param, text: texts[param.name] })), told, roles, choices }));
      if (!found.problems.length) found.reason = "None of its problems fits such a launch.";
      const left = FEATURES.filter(([, has]) => !found.problems.some((problem) => has(problem.names))).map(([what]) => what);
      found.note = (left.length ? `Not tried: ${left.join(", ")}. ` : "")
        + (found.unsure ? "No usual grid writes each number of the result once: if your launcher has another, say it below. " : "");
    }
  } catch (error) {
    found.reason = `A field of the launch cannot be read: ${error.message}.`;
  }
  found.fields = [
    ...(names.length > 1 ? [{ name: ":kernel", label: "kernel", text: kernel.name, options: names }] : []),
    ...CHOICES.map(([key, label, options]) => ({ name: key, label, text: choices[key.slice(1)], options })),
    { name: ":grid", label: "grid", text: grid },
    ...params.map(({ name }) => ({ name, text: texts[name] })),
  ];
  return found;
}
