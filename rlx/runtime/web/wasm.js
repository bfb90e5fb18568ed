// Runs a program of WebAssembly kernels, which `rlx export-web --fallback wasm` wrote beside the one
// for WebGPU, on the processor: one memory, in which every memory of the program has its place.

import { Model, offset, stepsOf } from "./rlx.js";
import { environment, Threads, threadsHere } from "./threads.js";

const PAGE = 65536;
const STACK = 1 << 20;
const ALIGNED = 64;
const MOST_PAGES = 65536;

const up = (n) => Math.ceil(n / ALIGNED) * ALIGNED;

export class WasmModel extends Model {
  /** Make what is there whatever the sizes. */
  async open(code, weights) {
    const { memories, modules } = this.program;
    this.code = code;
    this.modules = [];
    // A module's constants lie from 0 on, the stack behind them grows down to them.
    this.stack = up(Math.max(0, ...modules.map((m) => m.data)) + STACK);
    this.end = this.stack;
    const initial = Math.ceil(this.end / PAGE) + 1, count = this.device ?? threadsHere();
    const shared = count > 1 ? { maximum: MOST_PAGES, shared: true } : {};
    this.wasm = new WebAssembly.Memory({ initial, ...shared });
    const stacks = Array.from({ length: count - 1 }, () => this.reserve(STACK) + STACK);
    this.threads = count > 1 ? await Threads.of(count, this.wasm, stacks) : null;
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
    const taken = (this.modules[variant.code] ??= await this.loaded(variant.code));
    const { module, exports, constants } = taken;
    const names = kernels.map((k) => k.name);
    this.kernels = names.map((name) => exports[name]);
    if (this.threads && this.taken !== module) await this.threads.take(module, names);
    this.taken = module;
    new Uint8Array(this.wasm.buffer).set(constants);
    // A prologue's launches take room for arguments, which is given back with the rest.
    this.makeScratch(stepsOf(prologues[variant.prologue].steps));
  }

  /** The module of a variant, and its constants: others put theirs in the same place. */
  async loaded(number) {
    const { at, bytes, data, shared } = this.program.modules[number];
    let code = new Uint8Array(this.code, at, bytes);
    if (this.threads) {
      // An import of memory says whether that is shared.
      const [from, to] = [shared.at, shared.at + shared.bytes];
      code = new Uint8Array([...code.subarray(0, from), ...shared.imports, ...code.subarray(to)]);
    }
    const module = await WebAssembly.compile(code);
    const env = environment(this.wasm, this.stack);
    const { exports } = await WebAssembly.instantiate(module, { env });
    const constants = new Uint8Array(this.wasm.buffer, 0, data).slice();
    return { module, exports, constants };
  }

  /** Give memories for the sizes of a call their places, where those for others were. */
  allocate(memories, main) {
    this.end = this.kept;
    const own = memories.map((m) => this.reserve(m.bytes));
    this.bases.splice(this.program.memories.length, Infinity, ...own);
    this.makeScratch(main);
  }

  /** Take scratch for each thread. */
  makeScratch(steps) {
    this.stride = up(scratchOf(steps));
    this.scratch = this.reserve(this.stride * (this.threads?.count ?? 1));
  }

  release() {
    this.end = this.kept;
  }

  scoped(work) {
    return work();
  }

  /** End the threads; the model runs no more. */
  close() {
    this.threads?.close();
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
    const [range, grain] = step.grid;
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
    const { kernels, scratch, stride, threads } = this;
    const at = [step.at, step.at + 4 * places.length, scratch];
    if (threads) threads.run(kernels, step.kernel, range, grain, ...at, stride);
    else kernels[step.kernel](0, range, ...at);
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
