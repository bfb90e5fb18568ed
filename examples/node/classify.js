// Runs a classifier on rows of numbers: node classify.js model.rlx "1 2 3 4" ...
// The model has an input x and an output y, of f32, and any number of rows.
const { load } = require(process.env.RLX_ADDON ?? "./rlx.node");

async function main([path, ...texts]) {
  const rows = texts.map((t) => t.split(/\s+/).map(Number));
  const model = load(path);
  const x = Float32Array.from(rows.flat());
  const { y } = await model.run({ x }, { x: [rows.length, rows[0].length] });
  const width = y.length / rows.length;
  rows.forEach((_, i) => {
    const row = y.subarray(i * width, (i + 1) * width);
    console.log(Array.from(row, (v) => v.toFixed(4)).join(" "));
  });
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
