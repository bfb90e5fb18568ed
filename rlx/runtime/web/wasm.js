// Runs a program of WebAssembly kernels, which `rlx export-web --fallback wasm` wrote beside the one
// for WebGPU, on the processor: one memory, in which every memory of the program has its place.

import { Model, offset, stepsOf } from "./rlx.js";

const PAGE = 65536;
const STACK = 1 << 20;
const ALIGNED = 64;

const up = (n) => Math.ceil(n / ALIGNED) * ALIGNED;

export class WasmModel extends Model {
  /** Make what is there whatever the sizes. */
  open(code, weights) {
    const { memories, modules } = this.program;
    this.code = code;
    this.modules = [];
    // A module's constants lie from 0 on, the stack behind them grows down to them.
    this.stack = up(Math.max(0, ...modules.map((m) => m.data)) + STACK);
    this.end = this.stack;
    this.wasm = new WebAssembly.Memory({ initial: this.end / PAGE + 1 });
    this.bases = memories.map((m) => (m.role === "packed" ? null : this.reserve(m.bytes)));
    memories.forEach((m, n) => {
      if (m.at !== null) this.bytes(n, 0, m.bytes).set(new Uint8Array(weights, m.at, m.bytes));
    });
    this.kept = this.end;
  }

  /** Take the kernels of a variant, and make the memories that its prologue fills. */
  async ready(variant) {
    const { kernels, memories, prologues } = this.program;
    for (const n of prologues[variant.prologue].memories) {
      if (this.bases[n] !== null) continue;
      this.bases[n] = this.reserve(memories[n].bytes);
      this.bytes(n, 0, memories[n].bytes).fill(0);
    }
    this.kept = this.end;
    if (variant.code === null) return;
    const { exports, constants } = (this.modules[variant.code] ??= await this.loaded(variant.code));
    this.kernels = kernels.map((k) => exports[k.name]);
    new Uint8Array(this.wasm.buffer).set(constants);
    // A prologue's launches take room for arguments, which is given back with the rest.
    this.scratch = this.reserve(scratchOf(stepsOf(prologues[variant.prologue].steps)));
  }

  /** The module of a variant, and its constants: others put theirs in the same place. */
  async loaded(number) {
    const { at, bytes, data } = this.program.modules[number];
    const env = {
      __linear_memory: this.wasm,
      __stack_pointer: new WebAssembly.Global({ value: "i32", mutable: true }, this.stack),
      __indirect_function_table: new WebAssembly.Table({ initial: 1, element: "anyfunc" }),
    };
    const { instance } = await WebAssembly.instantiate(this.code.slice(at, at + bytes), { env });
    const constants = new Uint8Array(this.wasm.buffer, 0, data).slice();
    return { exports: instance.exports, constants };
  }

  /** Give memories for the sizes of a call their places, where those for others were. */
  allocate(memories, main) {
    this.end = this.kept;
    const own = memories.map((m) => this.reserve(m.bytes));
    this.bases.splice(this.program.memories.length, Infinity, ...own);
    this.scratch = this.reserve(scratchOf(main));
  }

  release() {
    this.end = this.kept;
  }

  scoped(work) {
    return work();
  }

  /** The address of so many bytes more. */
  reserve(bytes) {
    const at = this.end;
    this.end = up(at + bytes);
    const missing = Math.ceil((this.end - this.wasm.buffer.byteLength) / PAGE);
    if (missing > 0) this.wasm.grow(missing);
    return at;
  }

  bytes(memory, at, count) {
    return new Uint8Array(this.wasm.buffer, this.bases[memory] + at, count);
  }

  write(memory, at, array) {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    this.bytes(memory, at, bytes.length).set(bytes);
  }

  async read(memory, at, count) {
    return this.bytes(memory, at, count).slice().buffer;
  }

  flush() {}

  Launch(step, rounds) {
    const [range] = step.grid;
    if (!range) return;
    const { places, sizes } = step;
    step.at ??= this.reserve(4 * (places.length + sizes.length));
    const moves = places.some((p) => p.moves.length);
    if (moves || !step.bound) {
      const words = new Int32Array(this.wasm.buffer, step.at, places.length + sizes.length);
      places.forEach((p, n) => (words[n] = this.bases[p.base] + offset(p, rounds)));
      words.set(sizes, places.length);
      step.bound = true;
    }
    this.kernels[step.kernel](0, range, step.at, step.at + 4 * places.length, this.scratch);
  }
}

/** The most scratch that a launch among steps asks for. */
function scratchOf(steps) {
  const inside = (step) => Object.values(step).filter((v) => Array.isArray(v) && v[0]?.kind).flat();
  return steps.reduce(
    (most, s) => Math.max(most, s.kind === "Launch" ? s.grid[2] : scratchOf(inside(s))),
    0,
  );
}
