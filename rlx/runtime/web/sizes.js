// What binds variants to the sizes of a call: the first one whose guards they meet, and the numbers
// of its steps, its memories and its shapes (rlx/schedule/size_program.py).

const NUMBER = 0, SIZE = 1;
const APPLY = [
  null, null, (a, b) => a + b, (a, b) => a * b, floorDivide, Math.min, Math.max,
];
const HOLDS = [(a, b) => a === b, (a, b) => a !== b, (a, b) => a >= b, (a, b) => a <= b];
const MOST_STEP = 2 ** 31 - 1; // kernels count with 32 bits

/** The sizes of symbols, in their order, of a call's dims by name. */
export function sizesOf(symbols, dims) {
  for (const name of Object.keys(dims))
    if (!symbols.some((s) => s.name === name)) throw new Error(`rlx: no dim is called ${name}`);
  return symbols.map(({ name, least, most }) => {
    const size = dims[name];
    if (!Number.isSafeInteger(size) || size < least || (most !== null && size > most))
      throw new Error(
        `rlx: the dim ${name} is a size from ${least}${most === null ? " on" : ` to ${most}`},` +
          ` found ${size === undefined ? "nothing" : size}; give { ${name}: ... }`,
      );
    return size;
  });
}

/**
 * The variant for sizes: its number, the words of its steps, the bytes of its memories, and inputs
 * and outputs with their shapes.
 */
export function boundTo(program, sizes) {
  const { inputs, outputs, symbols, variants } = program;
  for (const [number, { main, memories, sizes: rows }] of variants.entries()) {
    if (rows === null) return { number, words: main, memories, inputs, outputs };
    const made = numbersOf(rows, sizes);
    if (made === null) continue;
    const words = main.slice();
    each(rows.patches, 2, (word, value) => (words[word] = checked(made[value])));
    const results = rows.results.map((value) => made[value]);
    const own = memories.map((m) => ({ ...m, bytes: results.shift() }));
    const shaped = (s) => ({ ...s, shape: s.shape.map(() => results.shift()) });
    return { number, words, memories: own, inputs: inputs.map(shaped), outputs: outputs.map(shaped) };
  }
  const found = symbols.map(({ name }, n) => `${name}=${sizes[n]}`);
  const known = variants.map((v) => v.sizes.conditions);
  throw new Error(`rlx: no variant is for ${found.join(", ")}, but for ${known.join("; or ")}`);
}

/** The numbers that the instructions make, or null where sizes do not meet the guards. */
export function numbersOf({ instructions, guards }, sizes) {
  const known = [...sizes, 0]; // every buffer has a memory of its own: there is no arena to plan
  const values = [];
  const run = (count) => {
    for (let i = values.length; i < count; ++i) {
      const [op, a, b] = instructions.slice(3 * i, 3 * i + 3);
      if (op === NUMBER) values.push(a);
      else if (op === SIZE) values.push(known[a]);
      else values.push(APPLY[op](values[a], values[b]));
      if (!Number.isSafeInteger(values[i])) throw new Error("rlx: the sizes are too large");
    }
  };
  for (let at = 0; at < guards.length; at += 3) {
    // One after the other: that a divisor is not 0 may be what one before says.
    const [value, relation, number] = guards.slice(at, at + 3);
    run(value + 1);
    if (!HOLDS[relation](values[value], number)) return null;
  }
  run(instructions.length / 3);
  return values;
}

function floorDivide(a, b) {
  const rest = ((a % b) + b) % b; // nan for 0, which is refused
  return (a - rest) / b;
}

function checked(number) {
  if (Math.abs(number) > MOST_STEP) throw new Error("rlx: the sizes are too large");
  return number;
}

function each(words, row, take) {
  for (let at = 0; at < words.length; at += row) take(...words.slice(at, at + row));
}
