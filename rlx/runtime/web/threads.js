// Threads for the kernels of wasm.js: workers on its memory, where a page or a program may share that.
// A launch is cut into chunks, which the threads claim one after another; the caller takes part, and
// waits for the chunks, never for a worker.

const WORDS = ["generation", "chunks", "done", "kernel", "range", "chunk", "buffers", "sizes",
  "scratch", "stride", "leave"]; // prettier-ignore
const AT = Object.fromEntries(WORDS.map((name, n) => [name, n]));
const STATE = 8 * Math.ceil(WORDS.length / 2); // the launch's number, and below it the next chunk
const CHUNK_BITS = 16n;
const CHUNKS_PER_THREAD = 4;
const SPINS = 2000;

/** How many threads a program may have here: 1 where memory cannot be shared. */
export function threadsHere() {
  return globalThis.crossOriginIsolated ? navigator.hardwareConcurrency : 1;
}

/** What all threads see of a launch. */
class Board {
  constructor(buffer) {
    this.words = new Int32Array(buffer);
    this.state = new BigInt64Array(buffer, STATE, 1);
  }

  get(name) {
    return Atomics.load(this.words, AT[name]);
  }

  set(name, value) {
    Atomics.store(this.words, AT[name], value);
  }

  /** Run chunks of the launch at hand until there are none. */
  help(kernels, thread) {
    for (;;) {
      // A launch that is over has no chunk left: whoever comes late claims none of the next by its words.
      const state = Atomics.load(this.state, 0);
      const next = Number(state & ((1n << CHUNK_BITS) - 1n));
      const [kernel, range, size] = [this.get("kernel"), this.get("range"), this.get("chunk")];
      const places = [this.get("buffers"), this.get("sizes")];
      const scratch = this.get("scratch") + thread * this.get("stride");
      if (next >= this.get("chunks")) return;
      if (Atomics.compareExchange(this.state, 0, state, state + 1n) !== state) continue;
      const begin = next * size;
      kernels[kernel](begin, Math.min(begin + size, range), ...places, scratch);
      Atomics.add(this.words, AT.done, 1);
    }
  }
}

export class Threads {
  /** `count` threads, the caller's included; `stacks` are addresses for those of the others. */
  static async of(count, memory, stacks) {
    const made = new Threads();
    made.count = count;
    made.buffer = new SharedArrayBuffer(STATE + 8);
    made.board = new Board(made.buffer);
    const starting = stacks.map((stack, n) => workerFor({ memory, stack, thread: n + 1 }));
    made.workers = await Promise.all(starting);
    return made;
  }

  /** Have all threads take the kernels of a module. */
  async take(module, names) {
    this.board.set("leave", 1);
    this.publish();
    await Promise.all(this.workers.map((w) => w.ask({ leave: true })));
    this.board.set("leave", 0);
    await Promise.all(this.workers.map((w) => w.ask({ module, names, board: this.buffer })));
  }

  publish() {
    Atomics.add(this.board.words, AT.generation, 1);
    Atomics.notify(this.board.words, AT.generation);
  }

  /** Run a kernel on a range, of which a thread takes at least `grain`. */
  run(kernels, kernel, range, grain, buffers, sizes, scratch, stride) {
    const most = Math.ceil(range / Math.max(grain, 1));
    const chunks = Math.min(most, this.count * CHUNKS_PER_THREAD);
    if (chunks < 2) return kernels[kernel](0, range, buffers, sizes, scratch);
    const chunk = Math.ceil(range / chunks), { board } = this;
    const words = { kernel, range, chunk, buffers, sizes, scratch, stride, done: 0 };
    for (const [name, value] of Object.entries(words)) board.set(name, value);
    const whole = Math.ceil(range / chunk);
    const number = (Atomics.load(board.state, 0) >> CHUNK_BITS) + 1n;
    // Nothing is there to be claimed while the count changes: whoever has read the one before fails.
    Atomics.store(board.state, 0, (number << CHUNK_BITS) | ((1n << CHUNK_BITS) - 1n));
    board.set("chunks", whole);
    Atomics.store(board.state, 0, number << CHUNK_BITS);
    this.publish();
    board.help(kernels, 0);
    while (board.get("done") < whole);
  }

  /** End the workers. */
  close() {
    for (const worker of this.workers) worker.end();
  }
}

/** A worker that answers each message with one. */
async function workerFor(first) {
  const url = new URL("./threads.js", import.meta.url);
  const inside = globalThis.Worker ? null : await import("node:worker_threads");
  const worker = inside
    ? new inside.Worker(url, { workerData: "rlx" })
    : new Worker(url, { type: "module", name: "rlx" });
  const answers = [];
  const hear = (message) => {
    if (inside) worker.unref(); // a program may end beside workers that wait
    answers.shift()?.[0](message);
  };
  const fail = (e) => answers.shift()?.[1](new Error(`rlx: a worker failed: ${e.message}`));
  if (inside) worker.on("message", hear).on("error", fail);
  else Object.assign(worker, { onmessage: (e) => hear(e.data), onerror: fail });
  const ask = (message) =>
    new Promise((resolve, reject) => {
      answers.push([resolve, reject]);
      if (inside) worker.ref();
      worker.postMessage(message);
    });
  await ask(first);
  return { ask, end: () => worker.terminate() };
}

/** In a worker: take what the caller says, and chunks until it says that there is more to take. */
function serve(port, listen) {
  let memory, stack, thread;
  listen(async (message) => {
    if (message.memory) ({ memory, stack, thread } = message);
    if (!message.module) return port.postMessage("ready");
    const env = environment(memory, stack);
    const { exports } = await WebAssembly.instantiate(message.module, { env });
    const kernels = message.names.map((name) => exports[name]);
    const board = new Board(message.board);
    let seen = board.get("generation");
    port.postMessage("ready");
    while (!board.get("leave")) {
      board.help(kernels, thread);
      for (let n = 0; n < SPINS && board.get("generation") === seen; n++);
      Atomics.wait(board.words, AT.generation, seen);
      seen = board.get("generation");
    }
  });
}

/** What a module imports. */
export const environment = (memory, stack) => ({
  __linear_memory: memory,
  __stack_pointer: new WebAssembly.Global({ value: "i32", mutable: true }, stack),
  __indirect_function_table: new WebAssembly.Table({ initial: 1, element: "anyfunc" }),
});

if (globalThis.WorkerGlobalScope && globalThis.name === "rlx") {
  serve(globalThis, (take) => (globalThis.onmessage = (e) => take(e.data)));
} else if (!globalThis.window && globalThis.process?.versions?.node) {
  const { parentPort, workerData } = await import("node:worker_threads");
  if (parentPort && workerData === "rlx") serve(parentPort, (take) => parentPort.on("message", take));
}
