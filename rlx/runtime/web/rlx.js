// Runs a program that `rlx export-web` wrote, on WebGPU; where there is none, on the processor, if
// the folder has the kernels for that.
//
//     import { load } from "./model/rlx.js";
//     const model = await load();
//     const { y } = await model.run({ x: new Float32Array([1, 2, 3, 4]) });
//
// `model.inputs` and `model.outputs` have the name, dtype and shape of each array. Arrays are flat,
// in row-major order, and of the type of `ARRAYS`; floats of 16 and 8 bits are given as
// their bits. Outputs that the graph gives no names are called 0, 1, ...
//
// Of a program for many sizes `model.symbols` are the dims that a call brings, each with its range,
// and shapes have their names: `model.run(feeds, { batch: 2, tokens: 7 })`, and
// `model.bind({ batch: 2, tokens: 7 })` has `inputs` and `outputs` with numbers, and `run(feeds)`.

import { boundTo, sizesOf } from "./sizes.js";
import { BYTES, KINDS, VERSION } from "./steps.js";

export const ARRAYS = {
  f32: Float32Array, i32: Int32Array, u32: Uint32Array, i16: Int16Array, u16: Uint16Array,
  i8: Int8Array, u8: Uint8Array, bool: Uint8Array, f16: Uint16Array, bf16: Uint16Array,
  c64: Float32Array, f64: Float64Array, i64: BigInt64Array, u64: BigUint64Array, c128: Float64Array,
  f8e4m3fn: Uint8Array, f8e5m2: Uint8Array,
};

const FORMAT = 5;
const WORD = 16;
const LIMITS = [
  "maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage",
  "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX", "maxComputeWorkgroupStorageSize",
];

const up = (n, step) => Math.ceil(n / step) * step;

/**
 * The program of a folder (by default this file's), on a GPU of this machine: `model.target` is then
 * "webgpu". Where there is none, or `device` is "wasm", it is "wasm", if the folder has that. That
 * takes `threads`, by default as many as the machine has in a page that is isolated, and else one.
 */
export async function load(
  folder = new URL(".", import.meta.url), device = null, from = fetched, threads = null,
) {
  const file = (name) => from(name, folder);
  const json = await file("program.json").then((f) => f.json());
  if (json.format !== FORMAT)
    throw new Error(`rlx: program.json has format ${json.format}; this rlx.js reads ${FORMAT}`);
  const { webgpu, wasm } = json.programs;
  const weights = await file("weights.bin").then((f) => f.arrayBuffer());
  if (device === "wasm" || !webgpu || (wasm && !device && !(await adapterHere()))) {
    if (!wasm) throw new Error("rlx: this folder has no program for wasm");
    const { WasmModel } = await import("./wasm.js");
    const model = new WasmModel(wasm, threads, "wasm");
    await model.start(await file("kernels.wasm").then((f) => f.arrayBuffer()), weights);
    return model;
  }
  const model = new Model(webgpu, device ?? (await open()), "webgpu");
  await model.start(await file("kernels.wgsl").then((f) => f.text()), weights);
  return model;
}

async function fetched(name, folder) {
  const found = await fetch(new URL(name, new URL(folder, location.href)));
  if (!found.ok) throw new Error(`rlx: ${name}: ${found.status} ${found.statusText}`);
  return found;
}

const adapterHere = async () => globalThis.navigator?.gpu?.requestAdapter();

/** A device with as much as the machine's GPU allows. */
async function open() {
  if (!navigator.gpu) throw new Error("rlx: this browser has no WebGPU");
  const adapter = await navigator.gpu.requestAdapter();
  if (!adapter) throw new Error("rlx: WebGPU finds no GPU here");
  const requiredLimits = Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]]));
  return adapter.requestDevice({ requiredLimits });
}

export class Model {
  constructor(program, device, target) {
    this.program = program;
    this.target = target;
    this.device = device;
    this.inputs = program.inputs;
    this.outputs = program.outputs;
    this.symbols = program.symbols;
    this.encoder = null;
    this.queue = Promise.resolve();
    this.memories = program.memories;
    this.sites = [];
    this.prologues = new Set(); // those that have run
    this.own = []; // what is there for the sizes of the last call
  }

  /** Take the code and the weights; with one size, do all that is done once. */
  async start(code, weights) {
    await this.scoped(() => this.open(code, weights));
    if (!this.symbols.length) await this.bound({});
  }

  /** What runs at sizes: its inputs and outputs with their shapes, and `run(feeds)`. */
  bind(dims) {
    const { inputs, outputs } = boundTo(this.program, sizesOf(this.symbols, dims));
    return { inputs, outputs, run: (feeds) => this.run(feeds, dims) };
  }

  /** Run on arrays by the names of inputs; the outputs by their names. Calls take turns. */
  run(feeds, dims = {}) {
    const result = this.queue.then(() => this.once(feeds, dims));
    this.queue = result.catch(() => {});
    return result;
  }

  async once(feeds, dims) {
    const { inputs, outputs, main, sites } = await this.bound(dims);
    inputs.forEach((input, n) => this.write(this.memory("input", n), 0, checked(input, feeds)));
    for (const name of Object.keys(feeds))
      if (!inputs.some((i) => i.name === name)) throw new Error(`rlx: no input is called ${name}`);
    await this.carryOut(main, sites);
    const found = {};
    for (const [n, { name, dtype }] of outputs.entries()) {
      const at = this.memory("output", n);
      found[name] = new ARRAYS[dtype](await this.read(at, 0, this.memories[at].bytes));
    }
    return found;
  }

  /** The program for sizes, with its kernels, its memories, and what depends on weights alone. */
  async bound(dims) {
    const sizes = sizesOf(this.symbols, dims);
    if (this.last && String(this.last.sizes) === String(sizes)) return this.last;
    const found = boundTo(this.program, sizes);
    const variant = this.program.variants[found.number];
    this.last = null;
    this.release();
    const known = this.program.memories;
    const main = this.checked(found.words, [...known, ...found.memories]);
    await this.scoped(async () => {
      await this.ready(variant);
      if (!this.prologues.has(variant.prologue)) {
        const { steps, sites } = this.program.prologues[variant.prologue];
        await this.carryOut(this.checked(steps, known), sites);
        this.prologues.add(variant.prologue);
      }
      this.allocate(found.memories, main);
    });
    this.memories = [...known, ...found.memories];
    this.last = { ...found, sizes, main, sites: variant.sites };
    return this.last;
  }

  /** The steps of words, which stay in memories. */
  checked(words, memories) {
    const steps = stepsOf(words);
    check(steps, memories.map((m) => m.bytes), this.program.kernels.length);
    return steps;
  }

  memory(role, index) {
    return this.memories.findIndex((m) => m.role === role && m.index === index);
  }

  async carryOut(steps, sites) {
    this.sites = sites;
    this.write(this.memory("error", 0), 0, new Int32Array(2));
    await this.steps(steps, []);
    this.flush();
    await this.check();
  }

  // -- what WebGPU does in its own way, and wasm.js in another

  /** Make what is there whatever the sizes. */
  open(code, weights) {
    const { device, program } = this;
    this.alignment = Math.max(WORD, device.limits.minStorageBufferOffsetAlignment);
    this.module = device.createShaderModule({ code });
    this.kernels = [];
    this.buffers = [];
    program.memories.forEach((m, n) => {
      if (m.role === "packed") return;
      this.buffers[n] = this.buffer(m.bytes);
      if (m.at !== null && m.bytes)
        device.queue.writeBuffer(this.buffers[n], 0, weights, m.at, up(m.bytes, 4));
    });
  }

  /** Make the kernels of a variant, and the memories that its prologue fills. */
  async ready(variant) {
    const { kernels, memories, prologues } = this.program;
    for (const n of prologues[variant.prologue].memories)
      this.buffers[n] ??= this.buffer(memories[n].bytes);
    const missing = variant.kernels.filter((n) => !this.kernels[n]);
    const made = await Promise.all(missing.map((n) => this.kernel(kernels[n], this.module)));
    missing.forEach((n, i) => (this.kernels[n] = made[i]));
  }

  /** Make memories for the sizes of a call. */
  allocate(memories) {
    this.own = memories.map((m) => this.buffer(m.bytes));
    this.buffers.splice(this.program.memories.length, Infinity, ...this.own);
  }

  release() {
    for (const buffer of this.own.splice(0)) buffer.destroy();
  }

  buffer(bytes) {
    const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
    const size = Math.max(WORD, up(bytes, WORD));
    return this.device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST });
  }

  /** Do work, and throw what WebGPU says of it. */
  async scoped(work) {
    const scopes = ["out-of-memory", "validation"], said = [];
    for (const scope of scopes) this.device.pushErrorScope(scope);
    try {
      await work();
    } finally {
      for (const _ of scopes) said.push(await this.device.popErrorScope());
    }
    for (const error of said) if (error) throw new Error(`rlx: ${error.message}`);
  }

  async kernel(k, module) {
    const types = k.bindings.map((access) => (access === "read" ? "read-only-storage" : "storage"));
    if (k.params) types.push("read-only-storage");
    const most = this.device.limits.maxStorageBuffersPerShaderStage;
    if (types.length > most)
      throw new Error(
        `rlx: kernel ${k.name} has ${types.length} buffers; WebGPU here allows ${most}`,
      );
    const entries = types.map((type, binding) => ({
      binding, visibility: GPUShaderStage.COMPUTE, buffer: { type },
    }));
    const group = this.device.createBindGroupLayout({ entries });
    const layout = this.device.createPipelineLayout({ bindGroupLayouts: [group] });
    const compute = { module, entryPoint: k.name };
    return { group, pipeline: await this.device.createComputePipelineAsync({ layout, compute }) };
  }

  async check() {
    if (!this.sites.length) return;
    const [code, site] = await this.error();
    if (code) throw new Error(`rlx: ${this.sites[site + code - 1]}`);
  }

  async error() {
    return new Int32Array(await this.read(this.memory("error", 0), 0, 8));
  }

  // -- memory

  write(memory, offset, array) {
    this.flush();
    const bytes = new Uint8Array(up(array.byteLength, 4));
    bytes.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    if (bytes.length) this.device.queue.writeBuffer(this.buffers[memory], offset, bytes);
  }

  /** A copy of bytes, once all that was run before is done. */
  async read(memory, offset, size) {
    const first = Math.floor(offset / 4) * 4;
    const count = Math.max(4, up(offset + size - first, 4));
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const staging = this.device.createBuffer({ size: count, usage });
    this.commands().copyBufferToBuffer(this.buffers[memory], first, staging, 0, count);
    this.flush();
    await staging.mapAsync(GPUMapMode.READ);
    const copy = staging.getMappedRange().slice(offset - first, offset - first + size);
    staging.destroy();
    return copy;
  }

  commands() {
    this.encoder ??= this.device.createCommandEncoder();
    return this.encoder;
  }

  flush() {
    if (this.encoder) this.device.queue.submit([this.encoder.finish()]);
    this.encoder = null;
  }

  // -- steps, in the given rounds of the loops around them

  async steps(list, rounds) {
    for (const step of list) {
      if (step.kind === "Launch") this.Launch(step, rounds);
      else await this[step.kind](step, rounds);
    }
  }

  Launch(step, rounds) {
    if (step.grid.includes(0)) return;
    const kernel = this.kernels[step.kernel];
    const moves = step.places.some((p) => p.moves.length);
    const bound = (!moves && step.bound) || this.group(step, kernel, rounds);
    if (!moves) step.bound = bound;
    const pass = this.commands().beginComputePass();
    pass.setPipeline(kernel.pipeline);
    pass.setBindGroup(0, bound);
    pass.dispatchWorkgroups(...step.grid);
    pass.end();
  }

  /** The memories of a launch as WebGPU binds them. */
  group(step, kernel, rounds) {
    const starts = [];
    const { elements } = this.program.kernels[step.kernel];
    const entries = step.places.map((place, binding) => {
      const at = offset(place, rounds);
      const first = Math.floor(at / this.alignment) * this.alignment;
      starts.push((at - first) / elements[binding]);
      return { binding, resource: { buffer: this.buffers[place.base], offset: first } };
    });
    const params = new Int32Array([...step.sizes, ...starts]);
    if (params.length) {
      const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST;
      const buffer = this.device.createBuffer({ size: up(params.byteLength, WORD), usage });
      this.device.queue.writeBuffer(buffer, 0, params);
      entries.push({ binding: entries.length, resource: { buffer } });
    }
    return this.device.createBindGroup({ layout: kernel.group, entries });
  }

  async flag(place, rounds) {
    return new Uint8Array(await this.read(place.base, offset(place, rounds), 1))[0] !== 0;
  }

  async If(step, rounds) {
    await this.steps((await this.flag(step.flag, rounds)) ? step.then : step.otherwise, rounds);
  }

  async While(step, rounds) {
    for (let done = 0; ; ++done) {
      await this.steps(step.test, rounds);
      if (!(await this.flag(step.flag, rounds))) return;
      if (this.sites.length && (await this.error())[0]) return;
      if (done === step.limit) {
        this.write(this.memory("error", 0), 0, new Int32Array([1, step.site]));
        return;
      }
      await this.steps(step.body, rounds);
    }
  }

  Collective() {
    throw new Error("a browser has no ranks to meet; compile the graph without collectives");
  }

  Await() {}  // none of these has begun

  async For(step, rounds) {
    for (let n = 0; n < step.rounds; ++n) {
      const round = step.reverse ? step.rounds - 1 - n : n;
      if (step.counter) {
        const number = new Int32Array([round, 0]);
        this.write(step.counter.base, offset(step.counter, rounds), number);
      }
      await this.steps(step.body, [...rounds, round]);
    }
  }
}

/** Where a place is in the given rounds of the loops around it. */
export function offset(place, rounds) {
  return place.moves.reduce((at, [depth, step]) => at + rounds[depth] * step, place.offset);
}

/** The steps that words say, by the table of steps.js. */
export function stepsOf(words) {
  let at = 0;
  const word = () => words[at++];
  const each = (read) => Array.from({ length: word() }, read);
  const place = () => ({ base: word(), offset: word(), moves: each(() => [word(), word()]) });
  const step = () => {
    const { kind, fields } = KINDS[word()] ?? {};
    if (!kind) throw new Error("rlx: the program has steps of no known kind");
    return Object.fromEntries([["kind", kind], ...fields.map((f) => [f.name, read[f.type]()])]);
  };
  const read = {
    kernel: word, word, flag: () => word() !== 0, grid: () => [word(), word(), word()],
    words: () => each(word), place, places: () => each(place), steps: () => each(step),
    "place?": () => {
      const there = word(), found = place();
      return there ? found : null;
    },
  };
  if (word() !== VERSION) throw new Error(`rlx: steps.js reads steps of version ${VERSION}`);
  return each(step);
}

/** Refuses steps whose words are out of bounds, or whose places leave their memories. */
export function check(steps, sizes, kernels, rounds = []) {
  for (const step of steps) {
    const { fields } = KINDS.find((k) => k.kind === step.kind);
    const refuse = (what) => {
      throw new Error(`rlx: the program is damaged: ${step.kind}: ${what}`);
    };
    const within = (name, word, least, most) => {
      if (!Number.isInteger(word) || word < least || word > most) refuse(`${name} ${word}`);
    };
    const inside = (name, place, bytes) => {
      within(`the memory of ${name}`, place.base, 0, sizes.length - 1);
      within(`the place of ${name}`, place.offset, 0, sizes[place.base] - bytes);
      let last = place.offset + bytes;
      for (const [depth, step] of place.moves) {
        within(`a loop of ${name}`, depth, 0, rounds.length - 1);
        within(`a move of ${name}`, step, 0, Infinity);
        last += Math.max(rounds[depth] - 1, 0) * step;
      }
      within(`the last place of ${name}`, last, 0, sizes[place.base]);
    };
    for (const { name, type, unit, least, most = Infinity } of fields) {
      if (type === "kernel") within(name, step[name], 0, kernels - 1);
      if (type === "grid") step[name].forEach((word) => within(name, word, 0, Infinity));
      if (type === "word") within(name, step[name], least, most);
      if (unit === "rank") step[name].forEach((word) => within(name, word, 0, step.ranks - 1));
    }
    const bytesOf = (word) => step[word] * (elements(fields, word) ? BYTES[step[typeWord(fields)]] : 1);
    const around = step.kind === "For" ? [...rounds, step.rounds] : rounds;
    for (const { name, type, holds } of fields) {
      if (type === "places") step[name].forEach((place) => inside(name, place, 0));
      if (type === "steps") check(step[name], sizes, kernels, around);
      if (!holds || !step[name]) continue;
      const { bytes, by } = holds.find(({ where }) => !where || where[1].includes(step[where[0]]));
      inside(name, step[name], by.reduce((all, word) => all * bytesOf(word), bytes));
    }
  }
}

const elements = (fields, word) => fields.find((f) => f.name === word).unit === "elements";
const typeWord = (fields) => fields.find((f) => f.unit === "element type").name;

function checked({ name, dtype, shape }, feeds) {
  const given = feeds[name];
  const expected = shape.reduce((a, b) => a * b, /^c/.test(dtype) ? 2 : 1);
  const kind = ARRAYS[dtype];
  if (!(given instanceof kind) || given.length !== expected)
    throw new Error(
      `rlx: input ${name} is a ${kind.name} of ${expected} (${dtype}, [${shape}]), found ` +
        (given === undefined ? "nothing" : `${given.constructor.name} of ${given.length}`),
    );
  return given;
}
