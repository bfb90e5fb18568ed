// A page each for an op, a pass, a rule and a class of errors, made from the code itself.
// RUN: %rlx-opt --explain=mir.gelu | %filecheck %s --check-prefix=OP
// RUN: %rlx-opt --explain gelu | %filecheck %s --check-prefix=OP
// RUN: %rlx-opt --explain=linear | %filecheck %s --check-prefix=BLOCK
// RUN: %rlx-opt --explain=fuse | %filecheck %s --check-prefix=PASS
// RUN: %rlx-opt --explain=canonicalize | %filecheck %s --check-prefix=UPSTREAM
// RUN: %rlx-opt --explain=add-zero | %filecheck %s --check-prefix=RULE
// RUN: %rlx-opt --explain=rowwise | %filecheck %s --check-prefix=PATTERN
// RUN: %rlx-opt --explain=ShapeError | %filecheck %s --check-prefix=ERROR
// RUN: not %rlx-opt --explain=ShapeEror 2>&1 | %filecheck %s --check-prefix=NONE

// OP: `mir.gelu`
// OP: distribution function of the standard normal
// OP: | `x` | operand | the tensor |
// OP: Element types: floats. Runs: pointwise, elementwise.

// BLOCK: `hir.linear`
// BLOCK: | `activation` | str
// BLOCK: Runs: expands

// PASS: pass fuse
// PASS: fuse: ops that one kernel can run become a ``mir.fused`` region.
// PASS: Options: disable-rules
// PASS: Rules: contraction, conv, integer_conv, pool, rowwise, elementwise

// UPSTREAM: pass canonicalize
// UPSTREAM: A pass of MLIR. Options, with their defaults: {{.*}}max-iterations=10

// RULE: rule add-zero of pass simplify
// RULE: add(x, 0) --> x
// RULE: On element types: int, uint

// PATTERN: rule rowwise of pass fuse

// ERROR: error ShapeError (GraphError, RlxError)
// ERROR: Shapes that do not fit together
// ERROR: What to do:

// NONE: is called 'ShapeEror'; did you mean 'ShapeError'?
