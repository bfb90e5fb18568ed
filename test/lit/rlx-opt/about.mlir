// What rlx-opt says of itself goes to stdout, and no input is read.
// RUN: %rlx-opt --help | %filecheck %s --check-prefix=HELP
// RUN: %rlx-opt --version | %filecheck %s --check-prefix=VERSION
// RUN: %rlx-opt --list-passes | %filecheck %s --check-prefix=LIST
// RUN: %rlx-opt --show-dialects | %filecheck %s --check-prefix=DIALECTS

// HELP: usage: rlx-opt
// HELP-DAG: --emit
// HELP-DAG: --verify-diagnostics
// HELP-DAG: share-inputs

// VERSION: rlx-opt {{[0-9]+\.[0-9]+}}
// VERSION-NEXT: MLIR (of torch-mlir) {{[0-9]+}}
// VERSION-NEXT: LLVM (of llvmlite) {{[0-9]+\.[0-9]+}}
// VERSION-NEXT: Python {{[0-9]+\.[0-9]+}}

// LIST: hir-to-mir {{ *}}Replace every hir block
// LIST-NEXT: legalize
// LIST-NEXT: simplify
// LIST-NEXT: share-inputs
// LIST-NEXT: hoist
// LIST-NEXT: fuse
// LIST-NEXT: reorder
// LIST-NEXT: mir-to-lir
// LIST-NEXT: Passes of MLIR, such as canonicalize and cse, are not listed.

// DIALECTS: Available Dialects: {{.*}},arith,{{.*}},builtin,{{.*}},func,{{.*}},hir,{{.*}},lir,{{.*}},mir,{{.*}},scf,
