// Runs a bundle of `write_bundle` as WebAssembly in node, for each folder that a line of stdin names:
// inputs are in0, in1, ... there, and outputs are written as out0, out1, ... A line says what became
// of it, "" if all went well.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const models = new Map();

async function loaded(bundle) {
  if (!models.has(bundle)) {
    const { load, ARRAYS } = await import(pathToFileURL(`${bundle}/rlx.js`));
    const from = async (name) => new Response(readFileSync(`${bundle}/${name}`));
    models.set(bundle, { model: await load(bundle, null, from), ARRAYS });
  }
  return models.get(bundle);
}

for await (const folder of createInterface({ input: process.stdin })) {
  try {
    const { model, ARRAYS } = await loaded(folder);
    const feeds = {};
    model.inputs.forEach(({ name, dtype }, n) => {
      const { buffer, byteOffset, byteLength } = readFileSync(`${folder}/in${n}`);
      feeds[name] = new ARRAYS[dtype](buffer.slice(byteOffset, byteOffset + byteLength));
    });
    const found = Object.values(await model.run(feeds));
    found.forEach((a, n) => writeFileSync(`${folder}/out${n}`, new Uint8Array(a.buffer)));
    console.log("");
  } catch (e) {
    console.log(`${e.message}`.replaceAll("\n", " "));
    if (!existsSync(folder)) throw e;
  }
}
