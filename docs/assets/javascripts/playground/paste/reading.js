/* What a kernel's text says of its parameters: which are pointers, which are written, which are asked whether they are
   there, which a loop moves on by; and how many axes of programs it has, whether it masks its loads or hides keys. */
import { parseFile } from "../engine/parser.js";

const MADE = new Set(["make_block_ptr", "make_tensor_descriptor", "advance", "multiple_of", "max_contiguous"]);
const ACCESS = /^(load|store|gather|scatter|atomic_\w+)$/;

function* nodesOf(tree) {
  if (Array.isArray(tree)) for (const item of tree) yield* nodesOf(item);
  else if (tree && typeof tree === "object") {
    if (tree.type) yield tree;
    for (const value of Object.values(tree)) if (value && typeof value === "object") yield* nodesOf(value);
  }
}

const isLanguage = (node) => node.type === "Name" && ["tl", "language"].includes(node.id)
  || (node.type === "Attribute" && node.name === "language");
const argumentOf = ({ args, keywords }, i, name) => args[i] ?? keywords.find((keyword) => keyword.name === name)?.value;

class Reading {
  constructor(tree, functions) {
    this.params = new Map(tree.params.map(({ name }) => [name, {}]));
    this.nodes = [...nodesOf(tree.body)];
    this.values = new Map(); // variable → what is assigned to it
    for (const { type, targets, target, value } of this.nodes) {
      if (!type.endsWith("Assign")) continue;
      for (const { id } of targets ?? [target]) if (id) this.values.set(id, [...(this.values.get(id) ?? []), value]);
    }
    this.calls = this.nodes.filter((node) => node.type === "Call");
    this.helpers = [];
    for (const call of this.calls) {
      const helper = functions.get(call.callee.id);
      if (helper) this.#passes(call, helper());
      else if (call.callee.type === "Attribute") this.#accesses(call);
    }
    const turns = new Set(this.nodes.filter(({ type }) => type === "For").map(({ target }) => target.id));
    for (const { type, operator, operators, left, right, rest, test, iterator, value } of this.nodes) {
      const moves = type === "For" ? iterator : type === "AugAssign" ? value : null;
      for (const { id } of nodesOf(moves)) this.#note(id, { stepped: true });
      if (operator === "*" && turns.has(left?.id)) this.#note(right.id, { stepped: true });
      if (operator === "*" && turns.has(right?.id)) this.#note(left.id, { stepped: true });
      if (type === "Compare" && operators[0].startsWith("is") && rest[0].value === null) this.#note(left.id, { optional: true });
      if (type === "If" || type === "IfExp") for (const { id } of nodesOf(test)) this.#note(id, { asked: true });
    }
    this.all = [this, ...this.helpers.flatMap((helper) => helper.all)]; // with what it calls
  }
  #note(name, what) {
    Object.assign(this.params.get(name) ?? {}, what);
  }
  /* The parameter that an address begins with, {name, made}: made into a block pointer or descriptor on the way. */
  #base(node, seen = new Set()) {
    switch (node?.type) {
      case "Name": {
        if (this.params.has(node.id)) return { name: node.id };
        if (seen.has(node.id)) return null;
        seen.add(node.id);
        return (this.values.get(node.id) ?? []).map((value) => this.#base(value, seen)).find(Boolean) ?? null;
      }
      case "Binary":
        return /^[-+]$/.test(node.operator) ? this.#base(node.left, seen) ?? this.#base(node.right, seen) : null;
      case "IfExp":
        return this.#base(node.body, seen) ?? this.#base(node.orelse, seen);
      case "Subscript":
        return this.#base(node.value, seen);
      case "Call": {
        const { callee } = node;
        if (callee.type !== "Attribute") return null;
        if (!isLanguage(callee.value)) return callee.name === "to" ? this.#base(callee.value, seen) : null;
        const found = MADE.has(callee.name) && this.#base(argumentOf(node, 0, "base"), seen);
        return found ? { ...found, made: true } : null;
      }
      default:
        return null;
    }
  }
  #accesses(call) {
    const { name, value } = call.callee;
    if (!ACCESS.test(name)) return;
    const direct = isLanguage(value);
    const found = this.#base(direct ? argumentOf(call, 0, "pointer") : value);
    if (!found) return;
    const kind = /load|gather/.test(name) ? "read" : "written";
    this.#note(found.name, { [kind]: true, ...(!direct && !found.made && { descriptor: true }), ...(direct && { pointer: true }) });
  }
  #passes({ args, keywords }, helper) {
    this.helpers.push(helper);
    const names = [...helper.params.keys()];
    for (const [name, value] of [...args.map((arg, i) => [names[i], arg]), ...keywords.map((one) => [one.name, one.value])]) {
      const { read, written, descriptor, pointer, stepped } = helper.params.get(name) ?? {};
      if (stepped) this.#note(value.id, { stepped });
      const found = (read || written) && this.#base(value);
      if (found) this.#note(found.name, { read, written, pointer: pointer || found.made, descriptor: descriptor && !found.made });
    }
  }
}

const isColumn = (node) => [...nodesOf(node)].some(({ type, index }) => type === "Subscript" && [...nodesOf(index)].some((n) => n.value === null));

/* A future key is hidden by comparing a column of places with a row of them. */
const hides = ({ type, operators, left, rest }) => type === "Compare" && /^[<>]/.test(operators[0]) && isColumn(left) && isColumn(rest[0]);

/* The kernels of a file, in order: [{name, params: [{name, constexpr, fallback, …}], axes, loops, masked, causal}]. */
export function kernelsOf(source) {
  const trees = new Map(parseFile(source).functions.map((tree) => [tree.name, tree]));
  const known = new Map();
  const functions = { get: (name) => trees.has(name) && !known.get(name)?.open ? () => reading(name) : undefined };
  function reading(name) {
    if (!known.has(name)) {
      known.set(name, { open: true }); // one that calls itself
      known.set(name, new Reading(trees.get(name), functions));
    }
    return known.get(name);
  }
  const all = [...trees.keys()].map((name) => [name, reading(name)]);
  const called = new Set(all.flatMap(([, one]) => one.helpers));
  return all.filter(([, one]) => !called.has(one)).map(([name, one]) => {
    const calls = one.all.flatMap((part) => part.calls);
    const nodes = one.all.flatMap((part) => part.nodes);
    const axes = calls.filter(({ callee }) => callee.name === "program_id").map((call) => argumentOf(call, 0, "axis")?.value ?? 0);
    const masked = (call) => call.callee.name === "load" && (argumentOf(call, 1, "mask") || argumentOf(call, 9, "boundary_check"));
    return {
      name,
      params: trees.get(name).params.map((param) => ({
        name: param.name, constexpr: /constexpr/.test(param.annotation?.name ?? param.annotation?.id), fallback: Boolean(param.default),
        ...one.params.get(param.name),
      })),
      axes: Math.max(0, ...axes) + 1,
      dtypes: new Set(calls.filter(({ callee }) => callee.name === "to").map(({ args }) => args[0]?.name)), // of casts
      masked: calls.some(masked),
      causal: nodes.some(hides),
    };
  });
}
