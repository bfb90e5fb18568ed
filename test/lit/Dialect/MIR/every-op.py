"""Every sample of every mir op parses, verifies and prints back to itself."""
# RUN: %python %inputs/ops.py samples mir | %rlx-opt --verify-roundtrip | %filecheck %s

# CHECK-DAG: "mir.add"
# CHECK-DAG: "mir.topk"
# CHECK-DAG: "mir.constant"
