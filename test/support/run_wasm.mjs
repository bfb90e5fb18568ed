// Runs bundles of `write_bundle` as WebAssembly in node. A line of stdin is JSON: the folder, and the
// dims of a bundle for many sizes, and how many threads. Inputs are in0, in1, ... there, and outputs are written as out0,
// out1, ... A line of JSON says what went wrong, "" if nothing did, and the shapes of the outputs.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const models = new Map();

async function loaded(bundle, threads) {
  const key = `${bundle} ${threads}`;
  if (!models.has(key)) {
    const { load, ARRAYS } = await import(pathToFileURL(`${bundle}/rlx.js`));
    const from = async (name) => new Response(readFileSync(`${bundle}/${name}`));
    models.set(key, { model: await load(bundle, null, from, threads), ARRAYS });
  }
  return models.get(key);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { folder, dims, threads } = JSON.parse(line);
  try {
    const { model, ARRAYS } = await loaded(folder, threads);
    const { inputs, outputs, run } = model.bind(dims);
    const feeds = {};
    inputs.forEach(({ name, dtype }, n) => {
      const { buffer, byteOffset, byteLength } = readFileSync(`${folder}/in${n}`);
      feeds[name] = new ARRAYS[dtype](buffer.slice(byteOffset, byteOffset + byteLength));
    });
    const found = await run(feeds);
    outputs.forEach(({ name }, n) => {
      writeFileSync(`${folder}/out${n}`, new Uint8Array(found[name].buffer));
    });
    console.log(JSON.stringify({ said: "", shapes: outputs.map((o) => o.shape) }));
  } catch (e) {
    console.log(JSON.stringify({ said: e.message, shapes: [] }));
    if (!existsSync(folder)) throw e;
  }
}
