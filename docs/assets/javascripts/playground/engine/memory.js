/* The memory that a kernel sees: its tensors, with guards around and between their elements.

   Addresses are bytes, and each storage has a terabyte of them to itself, so that a pointer which leaves
   its tensor cannot reach another one by accident. What belongs to no element reads as 0, takes no write,
   and is a fault with its place. What a masked lane without `other` loads is undefined in Triton; it is
   NaN here, so that a kernel which uses it shows. */
import { KernelError } from "./errors.js";
import { meter } from "./meter.js";
import { BY_NAME, int1, pointerTo, settle } from "./types.js";
import { Tensor, count, scalar } from "./values.js";

const SPACE = 2 ** 40; // bytes from one storage to the next; a pointer begins in the middle of its own
const NOBODY = 0;
const SECTOR = 32; // bytes
const LANES_KEPT = 4_000_000; // addresses of a trace, all accesses together

const DTYPES = { ...BY_NAME, bool: int1 };

export function dtypeNamed(name) {
  const dtype = DTYPES[name];
  if (!dtype) throw new KernelError(`a tensor of ${name} is not known here`, "runtime");
  return dtype;
}

const sectorsOf = ({ data }, mask) => new Set(data.filter((_, i) => !mask || mask.data[i]).map((x) => Math.floor(x / SECTOR))).size;

/* A tensor within its storage. */
class Region {
  constructor(tensor, dtype) {
    this.name = tensor.name;
    this.shape = tensor.shape;
    this.strides = tensor.strides;
    this.offset = tensor.offset ?? 0;
    this.dtype = dtype;
    this.output = Boolean(tensor.output);
    this.tensor = tensor;
  }
  /* Places of its elements in the storage, in the order of rows. */
  places() {
    const found = new Int32Array(count(this.shape));
    const index = this.shape.map(() => 0);
    let at = this.offset;
    for (let i = 0; i < found.length; i += 1) {
      found[i] = at;
      for (let axis = this.shape.length - 1; axis >= 0; axis -= 1) {
        at += this.strides[axis];
        index[axis] += 1;
        if (index[axis] < this.shape[axis]) break;
        at -= this.strides[axis] * this.shape[axis];
        index[axis] = 0;
      }
    }
    return found;
  }
  /* A place in the storage as this tensor's index, "k[17, 3]": the outermost axis may be beyond its end. */
  index(place) {
    let rest = place - this.offset;
    const axes = this.shape.map((n, axis) => axis).filter((axis) => this.shape[axis] > 1 || this.shape.length === 1);
    const order = axes.toSorted((a, b) => this.strides[b] - this.strides[a]);
    const found = new Map();
    for (const axis of order) {
      const step = this.strides[axis] || 1;
      found.set(axis, Math.floor(rest / step));
      rest -= found.get(axis) * step;
    }
    return axes.map((axis) => found.get(axis));
  }
  size() {
    const real = this.shape.length === 1 ? this.shape : this.shape.filter((n) => n > 1);
    return `[${real.join(", ")}]`;
  }
}

class Storage {
  constructor(number, data, dtype) {
    this.base = (number + 0.5) * SPACE;
    this.data = data;
    this.dtype = dtype;
    this.regions = [];
    this.owner = new Uint8Array(data.length); // 1 + the number of the region that has this element
    this.writer = null; // 1 + the program that wrote it last; only where there is an output
  }
  /* The region that a place outside of all of them is nearest to. */
  nearest(place) {
    const far = (region) => {
      const places = region.places();
      return place < region.offset ? region.offset - place : Math.max(0, place - places.at(-1));
    };
    return this.regions.toSorted((a, b) => far(a) - far(b))[0];
  }
}

export class Memory {
  constructor({ trace = false } = {}) {
    this.storages = [];
    this.faults = new Map(); // what makes two faults one → fault
    this.trace = trace;
    this.accesses = [];
    this.lanes = 0;
    this.counts = { loads: 0, stores: 0, bytesLoaded: 0, bytesStored: 0, sectorsLoaded: 0, sectorsStored: 0 };
    this.program = 0;
    this.line = () => 0;
    this.step = 0;
  }
  /* The pointer to a tensor that the page has passed. */
  place(tensor) {
    const dtype = dtypeNamed(tensor.dtype);
    let storage = this.storages.find((known) => known.data === tensor.data);
    if (!storage) {
      storage = new Storage(this.storages.length, tensor.data, dtype);
      this.storages.push(storage);
    }
    if (storage.dtype !== dtype) {
      throw new KernelError("one storage with two element types is not known here", "runtime");
    }
    const region = new Region(tensor, dtype);
    storage.regions.push(region);
    const number = storage.regions.length;
    for (const place of region.places()) {
      if (place < 0 || place >= storage.data.length) {
        throw new KernelError(`the tensor ${tensor.name} is larger than its storage`, "runtime");
      }
      storage.owner[place] = number;
    }
    if (region.output) storage.writer ??= new Int32Array(tensor.data.length);
    return scalar(pointerTo(dtype), storage.base + region.offset * dtype.size);
  }
  begin(program) {
    this.program = program;
    this.step = 0;
  }

  #storageAt(address, dtype) {
    const storage = this.storages[Math.floor(address / SPACE)];
    const known = storage?.dtype ?? dtype;
    if (dtype && known !== dtype && !(known.isInt && dtype.isInt && known.size === dtype.size)) {
      throw new KernelError(`a tensor of ${known} as ${dtype}: this page's engine does not know it; Triton does`, "limit");
    }
    return storage;
  }

  /* One lane outside of all tensors. */
  #outside(kind, address, size) {
    const storage = this.#storageAt(address);
    const line = this.line();
    const place = storage ? Math.floor((address - storage.base) / size) : 0;
    const region = storage?.nearest(place);
    const tensor = region?.name ?? "nothing";
    const key = `${kind}:${line}:${tensor}`;
    const known = this.faults.get(key);
    if (known) {
      known.count += 1;
      return;
    }
    const verb = kind === "read_out_of_bounds" ? "reads" : "writes";
    let said = `${verb} where there is no tensor`;
    let index = null;
    if (region) {
      const before = region.offset - place;
      index = region.index(place);
      said =
        before > 0
          ? `${verb} ${before} element${before > 1 ? "s" : ""} before the first of ${tensor}`
          : `${verb} ${tensor}[${index.join(", ")}], out of bounds of ${region.size()}`;
    }
    this.faults.set(key, {
      kind, line, tensor, index, program: this.program, count: 1,
      message: `program ${this.program} ${said}, line ${line}`,
    });
  }

  #note(kind, pointers, mask, size) {
    if (!this.trace || this.lanes > LANES_KEPT) return;
    const n = pointers.data.length;
    this.lanes += n;
    const offsets = new Int32Array(n).fill(-1);
    let tensor = "";
    for (let i = 0; i < n; i += 1) {
      if (mask && !mask.data[mask.data.length === 1 ? 0 : i]) continue;
      const storage = this.#storageAt(pointers.data[i]);
      if (!storage) continue;
      const place = Math.floor((pointers.data[i] - storage.base) / size);
      const region = storage.regions[(storage.owner[place] ?? 0) - 1] ?? storage.nearest(place);
      tensor ||= region.name;
      offsets[i] = place - region.offset;
    }
    this.accesses.push({
      step: this.step, program: this.program, kind, line: this.line(), tensor, offsets, shape: pointers.shape,
    });
  }

  /* mask and other are tiles of the pointers' shape, or null. */
  load(pointers, mask, other) {
    const dtype = pointers.dtype.element;
    const n = pointers.data.length;
    meter.spend(n);
    const out = new dtype.array(n);
    const size = dtype.size;
    const rest = dtype.isFloat ? NaN : 0;
    let active = 0;
    let storage = null;
    let low = 0;
    for (let i = 0; i < n; i += 1) {
      if (mask && !mask.data[i]) {
        out[i] = other ? other.data[i] : rest;
        continue;
      }
      active += 1;
      const address = pointers.data[i];
      if (!storage || address < low || address >= low + SPACE) {
        storage = this.#storageAt(address, dtype);
        low = storage ? storage.base - SPACE / 2 : Infinity;
      }
      const place = storage ? Math.floor((address - storage.base) / size) : -1;
      if (storage && storage.owner[place] > NOBODY) out[i] = storage.data[place];
      else this.#outside("read_out_of_bounds", address, size);
    }
    this.#note("load", pointers, mask, size);
    this.step += 1;
    this.counts.loads += 1;
    this.counts.bytesLoaded += active * size;
    this.counts.sectorsLoaded += sectorsOf(pointers, mask);
    return new Tensor(dtype, pointers.shape, out);
  }

  store(pointers, value, mask) {
    const dtype = pointers.dtype.element;
    const n = pointers.data.length;
    meter.spend(n);
    const size = dtype.size;
    const me = this.program + 1;
    let active = 0;
    for (let i = 0; i < n; i += 1) {
      if (mask && !mask.data[i]) continue;
      active += 1;
      const address = pointers.data[i];
      const storage = this.#storageAt(address, dtype);
      const place = storage ? Math.floor((address - storage.base) / size) : -1;
      if (!storage || !(storage.owner[place] > NOBODY)) {
        this.#outside("write_out_of_bounds", address, size);
        continue;
      }
      storage.data[place] = value.data[i];
      if (storage.writer) {
        const before = storage.writer[place];
        if (before && before !== me) this.#twice(storage, place, before - 1);
        storage.writer[place] = me;
      }
    }
    this.#note("store", pointers, mask, size);
    this.step += 1;
    this.counts.stores += 1;
    this.counts.bytesStored += active * size;
    this.counts.sectorsStored += sectorsOf(pointers, mask);
  }

  /* Read, combine and write; gives what was there. */
  update(pointers, value, mask, combine) {
    const before = this.load(pointers, mask, null);
    const data = new before.dtype.array(before.data.length);
    for (let i = 0; i < data.length; i += 1) {
      if (mask && !mask.data[i]) continue;
      const storage = this.#storageAt(pointers.data[i]);
      const place = storage ? Math.floor((pointers.data[i] - storage.base) / before.dtype.size) : -1;
      if (!storage || !(storage.owner[place] > NOBODY)) continue;
      data[i] = storage.data[place]; // an address may come twice in one tile
      storage.data[place] = settle(before.dtype, Float64Array.of(combine(data[i], value.data[i], i)))[0];
      if (storage.writer) storage.writer[place] = this.program + 1;
    }
    this.counts.stores += 1;
    return new Tensor(before.dtype, before.shape, data);
  }

  #twice(storage, place, before) {
    const region = storage.regions[storage.owner[place] - 1];
    const line = this.line();
    const key = `written_twice:${line}:${region.name}`;
    const known = this.faults.get(key);
    if (known) {
      known.count += 1;
      return;
    }
    const index = region.index(place);
    const said = `programs ${before} and ${this.program} both write ${region.name}[${index.join(", ")}], line ${line}`;
    this.faults.set(key, {
      kind: "written_twice", line, tensor: region.name, index, program: this.program, count: 1, message: said,
    });
  }

  /* After the last program: elements of outputs that none has written. */
  finish() {
    for (const storage of this.storages) {
      for (const region of storage.regions.filter((one) => one.output)) {
        const missing = region.places().filter((place) => !storage.writer[place]);
        if (!missing.length) continue;
        const index = region.index(missing[0]);
        const many = missing.length > 1 ? ` and ${missing.length - 1} more` : "";
        this.faults.set(`never_written:${region.name}`, {
          kind: "never_written", line: 0, tensor: region.name, index, program: null, count: missing.length,
          message: `${region.name}[${index.join(", ")}]${many} of ${region.size()} is never written`,
        });
      }
    }
  }
}
