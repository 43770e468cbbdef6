/* Turns the syntax tree of a kernel into functions that run it.

   The same functions serve two purposes. With `machine.checking` they run once on tiles without numbers,
   and follow Triton's front end: both sides of an `if` that depends on a tensor, a loop's body once, and
   the types of what they leave behind must agree. Then they run on numbers, one program after another. */
import { KernelError, fail } from "./errors.js";
import { CONSTEXPR, Descriptor, MODULES, PYTHON, RANGES, attribute } from "./language.js";
import { meter } from "./meter.js";
import { parseExpression } from "./parser.js";
import { tiles } from "./tiles.js";
import { int1, promoteIntegers } from "./types.js";
import { Const, NONE, Tensor, Tuple, bool, count, float, int, isNone, isNumber, pythonType, scalar, shown, toTensor } from "./values.js";

const DEEPEST = 30; // calls within calls
const MOST_UNROLLED = 10_000; // turns of a static_range

/* A jit function of the reader's file. */
export class Kernel {
  constructor(tree, file) {
    this.name = tree.name;
    this.tree = tree;
    this.file = file;
    this.params = tree.params.map((param) => ({
      name: param.name,
      constexpr: Boolean(param.annotation && isConstexpr(param.annotation)),
      fallback: param.default,
      keywordOnly: param.keywordOnly,
    }));
    this.names = new Map(); // local variable → its slot
    for (const param of tree.params) this.slot((param.keywordOnly ? "*" : "") + param.name); // Triton's front end passes over these
    assigned(tree.body, this);
    this.body = null;
    this.results = new Map(); // types of arguments → what all returns agree on, where one is a constant
  }
  slot(name) {
    if (!this.names.has(name)) this.names.set(name, this.names.size);
    return this.names.get(name);
  }
  /* Run it; `values` are its arguments, in order. */
  run(values, machine) {
    this.body ??= block(this.tree.body, this);
    if (machine.depth > DEEPEST) fail(`${this.name} calls itself without end`);
    const slots = Array.from({ length: this.names.size }, (_, i) => values[i]);
    const frame = { slots, returned: null, results: [], loops: 0, kernel: this };
    machine.depth += 1;
    this.body(frame, machine);
    machine.depth -= 1;
    if (machine.checking) {
      const result = frame.results.reduce(agreed, null) ?? NONE;
      if (frame.results.some((one) => one !== result)) this.results.set(values.map(typeOf).join(), result);
      return result;
    }
    const returned = frame.returned ?? NONE;
    return this.results.size ? like(returned, this.results.get(values.map(typeOf).join())) : returned;
  }
  /* The value of a parameter that is left out. */
  defaults(i, machine) {
    const { fallback, name } = this.params[i];
    if (!fallback) fail(`missing a required argument: '${name}'`);
    return expression(fallback.type ? fallback : parseExpression(fallback), null)(null, { ...machine, file: this.file.module() });
  }
  /* Called from another kernel. */
  call(args, keywords, machine) {
    const values = [...args];
    if (args.length > this.params.filter((param) => !param.keywordOnly).length) fail("too many positional arguments");
    for (const [name, value] of keywords) {
      const i = this.params.findIndex((param) => param.name === name);
      if (i < 0) fail(`got an unexpected keyword argument '${name}'`);
      if (values[i]) fail(`multiple values for argument '${name}'`);
      values[i] = value;
    }
    this.params.forEach((param, i) => {
      values[i] ??= this.defaults(i, machine);
    });
    const { line } = machine;
    if (this.tree.noinline && values.some((value) => value instanceof Tensor && count(value.shape) > 1)) {
      fail(`Function ${this.name} is marked noinline, but was called with non-scalar argument`);
    }
    const result = this.run(values, machine);
    machine.line = line;
    return result;
  }
}

/* A class of named tuples of the reader's file: a call makes one. */
class NamedTuple extends Kernel {
  run(values) {
    return new Tuple(values, this.params.map(({ name }) => name));
  }
}

export function isConstexpr(annotation) {
  return annotation.type === "Attribute" ? annotation.name === "constexpr" : annotation.id === "constexpr";
}

/* Two results of one function have one type: a constant and another one become a tensor. */
function agreed(before, now) {
  if (!before) return now;
  const mismatch = () => fail(`Return type mismatch: ${typeOf(before)} and ${typeOf(now)}. `);
  if (before instanceof Tuple) {
    if (before.items.length !== now.items?.length || before.fields.join() !== now.fields.join()) mismatch();
    return before.map((item, i) => agreed(item, now.items[i]));
  }
  if (typeOf(before) === typeOf(now)) return before;
  const [a, b] = [before, now].map((value) => (isNumber(value) ? unknown(toTensor(value)) : value));
  if (typeOf(a) !== typeOf(b)) mismatch();
  return a;
}

/* A result as what all results of its function are. */
function like(value, result) {
  if (value instanceof Tuple && result instanceof Tuple) return value.map((item, i) => like(item, result.items[i]));
  return result instanceof Tensor ? toTensor(value) : value;
}

function typeOf(value) {
  if (value instanceof Tensor || value instanceof Descriptor) return value.type;
  if (!(value instanceof Tuple)) return "constexpr[" + shown(value) + "]";
  return "(" + value.items.map((item, i) => (i in value.fields ? `${value.fields[i]}: ` : "") + typeOf(item)).join(", ") + ")";
}

/* Names that are assigned anywhere in a function are its own. */
function assigned(body, kernel) {
  const bind = (node) => {
    if (node.type === "Name") kernel.slot(node.id);
    else if (node.type === "Tuple" || node.type === "List") node.items.forEach(bind);
  };
  for (const node of body) {
    if (node.type === "Assign") node.targets.forEach(bind);
    else if (node.target) bind(node.target);
    if (node.body) assigned(node.body, kernel);
    if (node.orelse) assigned(node.orelse, kernel);
  }
}

const returns = (body) =>
  body.some((node) => node.type === "Return" || (node.body && returns(node.body)) || (node.orelse && returns(node.orelse)));

// Statements: each becomes a function of the frame and the machine.

function block(body, kernel) {
  const end = body.findIndex((node) => node.type === "Return");
  const steps = (end < 0 ? body : body.slice(0, end + 1)).map((node) => statement(node, kernel));
  return (frame, machine) => {
    for (const step of steps) {
      step(frame, machine);
      if (frame.returned && !machine.checking) return;
    }
  };
}

function statement(node, kernel) {
  const { line } = node;
  const unsupported = () => () => fail(`unsupported AST node type: ${node.name ?? node.type}`);
  const run = (STATEMENTS[node.type] ?? unsupported)(node, kernel);
  return (frame, machine) => {
    machine.line = line;
    meter.spend(0);
    if (machine.ran) machine.ran(line);
    run(frame, machine);
  };
}

const STATEMENTS = {
  Pass: () => () => {},
  Expr(node, kernel) {
    if (node.value.type === "Constant") return () => {}; // a docstring
    if (node.value.callee?.name === "advance" && node.value.callee.value.id === "tl") {
      return () => fail("The result of tl.advance is not being used. tl.advance does not have any side effects.");
    }
    return expression(node.value, kernel);
  },
  Assign(node, kernel) {
    if (node.targets.length > 1) return () => fail("only one target can be assigned to at a time");
    const value = expression(node.value, kernel);
    const give = target(node.targets[0], kernel, node.value);
    return (frame, machine) => give(frame, machine, kept(value(frame, machine)));
  },
  AugAssign(node, kernel) {
    const sum = { ...node, type: "Binary", left: node.target, right: node.value };
    return STATEMENTS.Assign({ ...node, targets: [node.target], value: sum }, kernel);
  },
  AnnAssign(node, kernel) {
    if (node.value === null) return () => fail("an annotation without a value");
    if (!isConstexpr(node.annotation)) return STATEMENTS.Assign({ ...node, targets: [node.target] }, kernel);
    const slot = kernel.slot(node.target.id);
    const value = expression(node.value, kernel);
    return (frame, machine) => {
      if (machine.checking && frame.slots[slot]) {
        fail(`${node.target.id} is already defined. constexpr cannot be reassigned.`);
      }
      const found = value(frame, machine);
      if (!isKnown(found)) fail(`${node.target.id} is not known when compiling`);
      frame.slots[slot] = found;
    };
  },
  Return(node, kernel) {
    const value = node.value && expression(node.value, kernel);
    return (frame, machine) => {
      const found = value ? value(frame, machine) : NONE;
      if (machine.checking) frame.results.push(found);
      else frame.returned = found;
    };
  },
  Assert(node, kernel) {
    const test = expression(node.test, kernel);
    return (frame, machine) => {
      const found = test(frame, machine);
      const no = found instanceof Const ? !found.value : found.data && found.data.some((x) => !x);
      if (no) throw new KernelError("the assertion fails", "runtime");
    };
  },
  If: choice,
  For: loop,
  While: whileLoop,
  FunctionDef: () => () => fail("nested function definition is not supported."),
};

const isKnown = (value) => value instanceof Const || value.items?.every(isKnown);

/* What an assignment makes of a value: a number becomes a tensor. */
function kept(value) {
  if (value instanceof Tensor || value instanceof Descriptor) return value;
  if (value instanceof Tuple) return value.map(kept);
  if (value.kind === "none" || value.kind === "dtype") return value;
  return toTensor(value);
}

/* A tile or a scalar by its name, those of a tuple each by its own. */
function watched(name, value, see) {
  if (value instanceof Tensor) see(name, value);
  else value.items?.forEach((item, i) => watched(name + (i in value.fields ? `.${value.fields[i]}` : `[${i}]`), item, see));
}

function target(node, kernel, source) {
  if (node.type === "Name") {
    const slot = kernel.slot(node.id);
    return (frame, machine, value) => {
      if (machine.watching) watched(node.id, value, (name, part) => machine.watching(name, part, source, frame));
      frame.slots[slot] = value;
    };
  }
  if (node.type === "Tuple" || node.type === "List") {
    const parts = node.items.map((item) => target(item, kernel, source));
    return (frame, machine, value) => {
      if (!(value instanceof Tuple)) fail(`cannot unpack ${shown(value)}`);
      if (value.items.length < parts.length) fail(`not enough values to unpack (expected ${parts.length}, got ${value.items.length})`);
      parts.forEach((give, i) => give(frame, machine, value.items[i]));
    };
  }
  const what = node.type === "Subscript" ? "__setitem__ is not supported in triton" : "Attribute assignment is not supported in triton";
  return () => fail(what);
}

// Choices.

/* A condition as true or false; a tensor of one number while numbers are computed. */
function decided(value) {
  if (value instanceof Tensor) return value.data[0] !== 0;
  if (value instanceof Const && (isNumber(value) || value.kind === "none")) return Boolean(value.value);
  return fail(
    "`if` conditionals can only accept values of type {bool, int, NoneType}, not objects of type " + pythonType(value),
  );
}

function scalarCondition(value) {
  if (count(value.shape) !== 1) fail("Boolean value of Tensor with more than one value is ambiguous");
}

function choice(node, kernel) {
  const test = expression(node.test, kernel);
  const then = block(node.body, kernel);
  const orelse = block(node.orelse, kernel);
  const leaves = returns(node.body) || returns(node.orelse);
  const name = (slot) => [...kernel.names.keys()][slot];
  return (frame, machine) => {
    const condition = test(frame, machine);
    if (condition instanceof Tensor) scalarCondition(condition);
    if (!machine.checking || !(condition instanceof Tensor)) {
      (decided(condition) ? then : orelse)(frame, machine);
      return;
    }
    if (leaves && frame.loops) fail("Cannot have `return` statements inside `while` or `for` statements in triton.");
    const before = frame.slots.slice();
    then(frame, machine);
    const afterThen = frame.slots;
    frame.slots = before.slice();
    orelse(frame, machine);
    const afterElse = frame.slots;
    frame.slots = before.map((live, slot) => {
      const [a, b] = [afterThen[slot], afterElse[slot]];
      if (live === undefined) {
        if (!a || !b || (a === before[slot] && b === before[slot])) return undefined; // local to one side
        if (typeOf(a) !== typeOf(b)) {
          fail(`Mismatched type for ${name(slot)} between then block (${typeOf(a)}) and else block (${typeOf(b)})`);
        }
        return a;
      }
      if (a === b) return a;
      for (const [value, which] of [[a, "then"], [b, "else"]]) {
        if (kindOf(value) !== kindOf(live) || typeOf(value) !== typeOf(live)) {
          fail(
            `initial value for \`${name(slot)}\` is of type ${typeOf(live)}, ` +
              `but the ${which} block redefines it as ${typeOf(value)}`,
          );
        }
      }
      return a === live ? b : a;
    });
  };
}

const kindOf = (value) => (value instanceof Tensor ? "tensor" : value instanceof Tuple ? "tuple" : value instanceof Descriptor ? "tensor_descriptor" : "constexpr");

// Loops.

/* Run a loop's body once on tiles without numbers: what it changes keeps its type. */
function checkedBody(frame, machine, body, kernel, own) {
  const before = frame.slots.slice();
  frame.loops += 1;
  body(frame, machine);
  frame.loops -= 1;
  const after = frame.slots;
  frame.slots = before.map((live, slot) => {
    const now = after[slot];
    if (live === undefined || slot === own || now === live) return live;
    const name = [...kernel.names.keys()][slot];
    if (isNone(live) || isNone(now)) fail(`Loop carried variable ${name} is not a triton value`);
    if (kindOf(now) !== kindOf(live)) {
      fail(`Loop carried variable ${name} changed type, was ${kindOf(now)} but is now ${kindOf(live)}`);
    }
    if (typeOf(now) !== typeOf(live)) {
      fail(
        `Loop-carried variable ${name} has initial type ${typeOf(live)} but is re-assigned to ${typeOf(now)} in loop! ` +
          "Please make sure that the type stays consistent.",
      );
    }
    return unknown(now);
  });
}

/* The type of a value, without its numbers. */
function unknown(value) {
  if (value instanceof Tensor) return new Tensor(value.dtype, value.shape, null);
  return value instanceof Tuple ? value.map(unknown) : value;
}

function loop(node, kernel) {
  const call = node.iterator;
  const only = "Only `range` and `static_range` iterators are currently supported";
  if (node.target.type !== "Name" || call.type !== "Call") return () => fail(only);
  if (node.orelse.length) return () => fail("Don't know what to do with else after for");
  const slot = kernel.slot(node.target.id);
  const callee = expression(call.callee, kernel);
  const parts = call.args.map((arg) => expression(arg, kernel));
  const named = call.keywords.map(({ name, value }) => [name, expression(value, kernel)]);
  const body = block(node.body, kernel);
  return (frame, machine) => {
    const iterator = callee(frame, machine).value;
    if (iterator !== RANGES.range && iterator !== RANGES.static) fail(only);
    const bounds = parts.map((part) => part(frame, machine));
    for (const [name, value] of named) {
      const found = value(frame, machine);
      const at = ["arg1", "arg2", "step"].indexOf(name);
      if (at >= 0) bounds[at] = found;
      else if (!LOOP_OPTIONS.has(name)) fail(`range.__init__() got an unexpected keyword argument '${name}'`);
    }
    if (!bounds.length || bounds.length > 3) fail(`range expected at least 1 argument, got ${bounds.length}`);
    const [start, stop] = bounds.length > 1 ? bounds : [int(0), bounds[0]];
    const step = bounds[2] ?? int(1);
    if (iterator === RANGES.static) unrolled(frame, machine, { start, stop, step, slot, body });
    else counted(frame, machine, { start, stop, step, slot, body, kernel, name: node.target.id, line: node.line });
  };
}

const LOOP_OPTIONS = new Set(
  "num_stages loop_unroll_factor disallow_acc_multi_buffer flatten warp_specialize disable_licm".split(" "),
);

function unrolled(frame, machine, { start, stop, step, slot, body }) {
  for (const bound of [start, stop, step]) {
    if (!(bound instanceof Const) || bound.kind !== "int") fail("the bounds of tl.static_range must be known when compiling");
  }
  if (step.value === 0) fail("range() arg 3 must not be zero");
  let turns = 0;
  for (let i = start.value; step.value > 0 ? i < stop.value : i > stop.value; i += step.value) {
    turns += 1;
    if (turns > MOST_UNROLLED) fail(`tl.static_range is unrolled, and has more than ${MOST_UNROLLED} turns`);
    frame.slots[slot] = int(i);
    body(frame, machine);
  }
}

function counted(frame, machine, { start, stop, step, slot, body, kernel, name, line }) {
  const bounds = [start, stop, step].map(toTensor);
  const [first, last, by] = bounds;
  if (!bounds.every((bound) => bound.dtype.isInt)) {
    fail(`For loop bounds and step must all be ints, are (${bounds.map((bound) => bound.dtype).join(", ")})`);
  }
  ["lower bound", "upper bound", "step"].forEach((what, i) => {
    if (bounds[i].isBlock) fail(`For ${what} must be a scalar, got ${bounds[i].type}`);
  });
  const dtype = bounds.map((bound) => bound.dtype).reduce(promoteIntegers);
  if (machine.checking) {
    frame.slots[slot] = new Tensor(dtype, [], null);
    checkedBody(frame, machine, body, kernel, slot);
    return;
  }
  const [from, to, stride] = [first.data[0], last.data[0], by.data[0]];
  if (stride === 0) throw new KernelError("the step of a loop must not be 0", "runtime");
  for (let i = from; stride > 0 ? i < to : i > to; i += stride) {
    frame.slots[slot] = scalar(dtype, i);
    if (machine.turning) machine.turning(name, i, line);
    body(frame, machine);
    if (frame.returned) return;
  }
}

function whileLoop(node, kernel) {
  const test = expression(node.test, kernel);
  const body = block(node.body, kernel);
  if (node.orelse.length) return () => fail("Not implemented");
  return (frame, machine) => {
    if (machine.checking) {
      const condition = test(frame, machine);
      if (!(condition instanceof Tensor)) fail("'constexpr' object has no attribute 'handle'");
      scalarCondition(condition);
      if (condition.dtype !== int1) fail(`the condition of a while must be of type int1, not ${condition.type}`);
      checkedBody(frame, machine, body, kernel, -1);
      return;
    }
    while (decided(test(frame, machine))) {
      if (machine.turning) machine.turning("while", 0, node.line);
      body(frame, machine);
      if (frame.returned) return;
      machine.line = node.line;
      meter.spend(0);
    }
  };
}

// Expressions.

function expression(node, kernel) {
  const make = EXPRESSIONS[node.type];
  if (!make) return () => fail(`unsupported AST node type: ${node.type}`);
  return make(node, kernel);
}

const EXPRESSIONS = {
  Constant(node) {
    if (node.kind === "ellipsis") return () => fail("unsupported AST node type: Ellipsis");
    const value = new Const(node.kind, node.value);
    return () => value;
  },
  Name(node, kernel) {
    if (kernel && kernel.names.has(node.id)) {
      const slot = kernel.names.get(node.id);
      return (frame, machine) => {
        const value = frame?.slots[slot];
        if (value !== undefined) return value;
        machine.line = node.line;
        return fail(`${node.id} is not defined`);
      };
    }
    let found;
    return (frame, machine) => {
      found ??= machine.file.global(node.id, machine);
      return found;
    };
  },
  Attribute(node, kernel) {
    const value = expression(node.value, kernel);
    return (frame, machine) => attribute(value(frame, machine), node.name);
  },
  Tuple(node, kernel) {
    const items = node.items.map((item) => expression(item, kernel));
    return (frame, machine) => new Tuple(items.map((item) => item(frame, machine)));
  },
  JoinedStr(node, kernel) {
    const values = node.values.map((value) => expression(value, kernel));
    return (frame, machine) =>
      new Const("str", values.map((value) => {
        const found = value(frame, machine);
        return found instanceof Const ? shown(found) : fail("Cannot evaluate f-string containing non-constexpr conversion values");
      }).join(""));
  },
  ListComp(node, kernel) {
    const slot = kernel.slot(node.target);
    const [item, iterator] = [expression(node.item, kernel), expression(node.iterator, kernel)];
    return (frame, machine) => {
      const list = iterator(frame, machine);
      if (!(list instanceof Tuple)) fail("only tuple comprehensions are supported");
      return new Tuple(list.items.map((one) => {
        frame.slots[slot] = one;
        return item(frame, machine);
      }));
    };
  },
  List: (node, kernel) => EXPRESSIONS.Tuple(node, kernel),
  Slice(node, kernel) {
    const parts = [node.lower, node.upper, node.step].map((part) => part && expression(part, kernel));
    return (frame, machine) => ({ slice: parts.map((part) => (part ? part(frame, machine) : NONE)) });
  },
  Subscript(node, kernel) {
    const value = expression(node.value, kernel);
    const index = expression(node.index, kernel);
    return (frame, machine) => subscript(value(frame, machine), index(frame, machine));
  },
  Call: callOf,
  Unary(node, kernel) {
    const operand = expression(node.operand, kernel);
    return (frame, machine) => unary(node.operator, operand(frame, machine));
  },
  Binary(node, kernel) {
    const left = expression(node.left, kernel);
    const right = expression(node.right, kernel);
    const { operator, line } = node;
    return (frame, machine) => {
      const a = left(frame, machine);
      const b = right(frame, machine);
      machine.line = line;
      return binary(operator, a, b);
    };
  },
  Compare(node, kernel) {
    const left = expression(node.left, kernel);
    if (node.rest.length > 1) return () => fail("simultaneous multiple comparison is not supported");
    const right = expression(node.rest[0], kernel);
    const [operator] = node.operators;
    return (frame, machine) => comparison(operator, left(frame, machine), right(frame, machine));
  },
  Boolean(node, kernel) {
    const values = node.values.map((value) => expression(value, kernel));
    return (frame, machine) => logical(node.operator, values, frame, machine);
  },
  IfExp(node, kernel) {
    const [test, body, orelse] = [node.test, node.body, node.orelse].map((part) => expression(part, kernel));
    return (frame, machine) => {
      const condition = test(frame, machine);
      if (!(condition instanceof Tensor)) return (decided(condition) ? body : orelse)(frame, machine);
      scalarCondition(condition);
      if (!machine.checking) return toTensor((decided(condition) ? body : orelse)(frame, machine));
      const [a, b] = [toTensor(body(frame, machine)), toTensor(orelse(frame, machine))];
      if (a.type !== b.type) {
        fail(`Ternary expression with dynamic condition has inconsistent types ${a.type} and ${b.type}`);
      }
      return unknown(a);
    };
  },
};

function callOf(node, kernel) {
  const callee = expression(node.callee, kernel);
  const args = node.args.map((arg) => [arg.type === "Starred", expression(arg.type === "Starred" ? arg.value : arg, kernel)]);
  const keywords = node.keywords.map(({ name, value }) => [name, expression(value, kernel)]);
  const { line } = node;
  return (frame, machine) => {
    const called = callee(frame, machine);
    const values = [];
    for (const [starred, arg] of args) {
      const value = arg(frame, machine);
      if (starred) values.push(...(value.items ?? fail(`${shown(value)} cannot be spread: it is no tuple`)));
      else values.push(value);
    }
    const named = keywords.map(([name, value]) => [name, value(frame, machine)]);
    machine.line = line;
    if (called instanceof Const && called.kind === "function") return called.value.call(values, named, machine);
    return fail(`'${pythonType(called)}' object is not callable`);
  };
}

function subscript(value, index) {
  if (value instanceof Tuple) {
    if (index.slice && [index.slice[0], index.slice[1]].every((part) => isNone(part) || isNumber(part)) && isNone(index.slice[2])) {
      return new Tuple(value.items.slice(...index.slice.slice(0, 2).map((part) => part.value ?? undefined)));
    }
    if (!isNumber(index)) fail("a tuple's index must be known when compiling");
    const at = index.value < 0 ? index.value + value.items.length : index.value;
    return value.items[at] ?? fail("tuple index out of range");
  }
  if (!(value instanceof Tensor)) fail(`'${pythonType(value)}' object is not subscriptable`);
  const items = index instanceof Tuple ? index.items : [index];
  let result = value;
  items.forEach((item, axis) => {
    const isNew = item instanceof Const && item.kind === "none";
    if (isNew && axis > result.shape.length) fail(`unsupported tensor index: axis ${axis} of ${result.type}`);
    if (isNew) result = tiles.expandDims(result, axis);
    else if (!(item.slice && item.slice.every(isNone))) fail(`unsupported tensor index: ${item.slice ? "slice" : shown(item)}`);
  });
  return result;
}

function unary(operator, value) {
  if (value instanceof Tensor) {
    if (operator === "-") return tiles.negative(value);
    if (operator === "+") fail("'tensor' object has no attribute '__pos__'");
    if (operator === "~") return tiles.invert(value);
    return tiles.invert(tiles.truth(value));
  }
  if (operator === "not") return bool(value instanceof Tuple ? !value.items.length : !value.value);
  if (!isNumber(value)) fail(`AST unary operator '${operator}' is not (currently) implemented on type ${pythonType(value)}`);
  const number = Number(value.value);
  if (operator === "~") return int(~number);
  return new Const(value.kind === "float" ? "float" : "int", operator === "-" ? -number : number);
}

const ON_TENSORS = {
  "+": tiles.add,
  "-": tiles.sub,
  "*": tiles.mul,
  "/": tiles.trueDivide,
  "//": tiles.floorDivide,
  "%": tiles.remainder,
};

function binary(operator, a, b) {
  if (a instanceof Tensor || b instanceof Tensor) {
    for (const value of [a, b]) {
      if (!(value instanceof Tensor) && !isNumber(value)) {
        fail(`unsupported operand type(s) for ${operator}: '${pythonType(a)}' and '${pythonType(b)}'`);
      }
    }
    if (operator in ON_TENSORS) return ON_TENSORS[operator](a, b);
    if ("&|^<<>>".includes(operator)) return tiles.bitwise(operator, a, b);
    const name = operator === "**" ? "__pow__" : "__matmul__";
    return fail(operator === "@" ? "AST binary operator 'MatMult' is not (currently) implemented." : `'tensor' object has no attribute '${name}'`);
  }
  if (a instanceof Tuple && b instanceof Tuple && operator === "+") return new Tuple([...a.items, ...b.items]);
  if (a.kind === "str" && b.kind === "str" && operator === "+") return new Const("str", a.value + b.value);
  if (!isNumber(a) || !isNumber(b)) {
    fail(`unsupported operand type(s) for ${operator}: '${pythonType(a)}' and '${pythonType(b)}'`);
  }
  return numbers(operator, a, b);
}

const ON_NUMBERS = {
  "+": (x, y) => x + y,
  "-": (x, y) => x - y,
  "*": (x, y) => x * y,
  "//": (x, y) => Math.floor(x / y),
  "%": (x, y) => x - Math.floor(x / y) * y,
};

/* Python's arithmetic. */
function numbers(operator, a, b) {
  const [x, y] = [Number(a.value), Number(b.value)];
  const real = a.kind === "float" || b.kind === "float";
  const made = (value) => new Const(real ? "float" : "int", value);
  if (y === 0 && ["/", "//", "%"].includes(operator)) fail("division by zero");
  if (operator in ON_NUMBERS) return made(ON_NUMBERS[operator](x, y));
  if (operator === "/") return float(x / y);
  if (operator === "**") return !real && y >= 0 ? int(x ** y) : float(x ** y);
  if (y < 0 && (operator === "<<" || operator === ">>")) fail("negative shift count");
  if (real) fail(`unsupported operand type(s) for ${operator}: '${pythonType(a)}' and '${pythonType(b)}'`);
  const both = a.kind === "bool" && b.kind === "bool";
  const bits = { "&": BigInt(x) & BigInt(y), "|": BigInt(x) | BigInt(y), "^": BigInt(x) ^ BigInt(y) };
  if (operator in bits) return both ? bool(bits[operator]) : int(Number(bits[operator]));
  if (operator === "<<") return int(x * 2 ** y);
  if (operator === ">>") return int(Math.floor(x / 2 ** y));
  return fail("AST binary operator 'MatMult' is not (currently) implemented.");
}

const ORDER = {
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
};

function comparison(operator, a, b) {
  if (operator === "is" || operator === "is not") {
    const same = a === b || (a instanceof Const && b instanceof Const && a.kind === b.kind && a.value === b.value);
    return bool(same === (operator === "is"));
  }
  if (operator === "in" || operator === "not in") fail(`AST comparison operator '${operator === "in" ? "In" : "NotIn"}' is not (currently) implemented.`);
  if (a instanceof Tensor || b instanceof Tensor) {
    const other = a instanceof Tensor ? b : a;
    if (!(other instanceof Tensor) && !isNumber(other)) {
      fail(`cannot convert ${shown(other)} of type <class '${pythonType(other)}'> to tensor`);
    }
    return tiles.compare(operator, a, b);
  }
  if (operator === "==" || operator === "!=") {
    const plain = isNumber(a) && isNumber(b) ? Number(a.value) === Number(b.value) : a.kind === b.kind && a.value === b.value;
    return bool(plain === (operator === "=="));
  }
  if (!isNumber(a) || !isNumber(b)) {
    fail(`'${operator}' not supported between instances of '${pythonType(a)}' and '${pythonType(b)}'`);
  }
  return bool(ORDER[operator](Number(a.value), Number(b.value)));
}

/* `and` and `or`: what is known decides at once, tensors are all looked at. */
function logical(operator, values, frame, machine) {
  let rest = null;
  let last = null;
  for (const value of values) {
    last = value(frame, machine);
    if (last instanceof Tensor) {
      rest = rest ? tiles.bitwise(operator === "and" ? "&" : "|", tiles.truth(rest), tiles.truth(last)) : last;
    } else {
      const yes = last instanceof Tuple ? last.items.length > 0 : Boolean(last.value);
      if (yes === (operator === "or")) return last;
    }
  }
  return rest ?? last;
}

function imported(name, path) {
  const [first, ...rest] = path.split(".");
  if (first in MODULES) return rest.reduce(attribute, MODULES[first]);
  throw new KernelError(`${name} is imported from ${path}: this page's engine reads this file alone`, "limit");
}

/* The kernels and the constants of a file. */
export class File {
  constructor({ functions, classes, constants, imports }) {
    this.kernels = new Map(functions.map((tree) => [tree.name, new Kernel(tree, this)]));
    this.classes = new Map(classes.map((tree) => [tree.name, new NamedTuple(tree, this)]));
    this.constants = constants;
    this.imports = imports;
    this.known = new Map();
  }
  /* What a name means that no function has made its own. */
  global(name, machine) {
    const own = this.kernels.get(name) ?? this.classes.get(name);
    if (own) return new Const("function", own);
    if (this.constants.has(name)) return this.constant(name, machine);
    if (this.imports.has(name)) {
      const value = imported(name, this.imports.get(name));
      return isNumber(value) ? this.hidden(name) : value;
    }
    if (name in MODULES && !this.imports.size) return MODULES[name];
    return PYTHON.get(name) ?? fail(`${name} is not defined`);
  }
  /* A constant of the module: kernels see those alone that are made by tl.constexpr. */
  constant(name, machine) {
    const node = parseExpression(this.constants.get(name));
    const from = (one) => (one.type === "Attribute" ? from(one.value) : one.id);
    const [called, of] = [node.type === "Call", from(node.type === "Call" ? node.callee : node)];
    if (!of || !(this.imports.get(of) ?? of).startsWith(this.imports.size ? "triton" : "t")) this.hidden(name);
    const made = expression(called ? node.callee : node, null)(null, machine);
    if (called ? made.value !== CONSTEXPR : !["dtype", "function", "module"].includes(made.kind)) this.hidden(name);
    if (!this.known.has(name)) this.known.set(name, expression(node, null)(null, { ...machine, file: this.module() }));
    return this.known.get(name);
  }
  hidden(name) {
    fail(
      `Cannot access global variable ${name} from within @jit'ed function. Triton kernels can only access global ` +
        "variables that are instanstiated as constexpr (`x = triton.language.constexpr(42)`).",
    );
  }
  /* The file as its own top level sees it: there every name counts. */
  module() {
    return {
      global: (name, machine) => {
        if (this.imports.has(name)) return imported(name, this.imports.get(name));
        if (!this.constants.has(name)) return this.global(name, machine);
        return expression(parseExpression(this.constants.get(name)), null)(null, machine);
      },
    };
  }
}
