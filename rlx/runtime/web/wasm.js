// Runs a program of WebAssembly kernels, which `rlx export-web --fallback wasm` wrote beside the one
// for WebGPU, on the processor: one memory, in which every memory of the program has its place.

import { Model, offset } from "./rlx.js";

const PAGE = 65536;
const STACK = 1 << 20;
const ALIGNED = 64;

const up = (n) => Math.ceil(n / ALIGNED) * ALIGNED;

export class WasmModel extends Model {
  /** Make kernels and memories, and run what depends on weights alone. */
  async start(code, weights) {
    const { program } = this;
    // The module's constants lie from 0 on, the stack behind them grows down to them.
    const stack = up(program.data + STACK);
    this.end = stack;
    this.wasm = new WebAssembly.Memory({ initial: this.end / PAGE + 1 });
    this.bases = program.memories.map((m) => this.reserve(m.bytes));
    this.scratch = this.reserve(scratchOf([...this.prologue, ...this.main]));
    program.memories.forEach((m, n) => {
      if (m.at !== null) this.bytes(n, 0, m.bytes).set(new Uint8Array(weights, m.at, m.bytes));
    });
    const env = {
      __linear_memory: this.wasm,
      __stack_pointer: new WebAssembly.Global({ value: "i32", mutable: true }, stack),
      __indirect_function_table: new WebAssembly.Table({ initial: 1, element: "anyfunc" }),
    };
    const { instance } = await WebAssembly.instantiate(code, { env });
    this.kernels = program.kernels.map((k) => instance.exports[k.name]);
    await this.steps(this.prologue, []);
    await this.check();
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
