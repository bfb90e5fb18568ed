// The number of threads that this process should use.
#pragma once

#include <string>

namespace rlx {

inline constexpr int kMaxThreads = 4096;

// RLX_NUM_THREADS, or else the smaller of the CPU affinity and the cgroup CPU quota rounded up.
// Throws Error when RLX_NUM_THREADS is no integer in 1..kMaxThreads.
int default_threads();

// Throws Error naming `where` unless `text` is an integer in 1..kMaxThreads.
int parse_thread_count(const std::string& where, const std::string& text);

// The CPU quota of this process's cgroup (v1 or v2) in whole CPUs, rounded up; 0 when unlimited or
// unknown. `root` stands in front of /proc and /sys; tests point it at a directory of their own.
int cgroup_cpu_quota(const std::string& root = "");

}  // namespace rlx
