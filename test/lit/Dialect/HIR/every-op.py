"""Every sample of every hir op parses, verifies and prints back to itself."""
# RUN: %python %inputs/ops.py samples hir | %rlx-opt --verify-roundtrip | %filecheck %s

# CHECK-DAG: "hir.linear"
# CHECK-DAG: "hir.bert_layer"
# CHECK-DAG: "hir.llama_decoder_block"
