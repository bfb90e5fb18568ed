// CPU affinity: the CPUs a thread may run on, the one it runs on, and its CPU time.
#pragma once

#if defined(__linux__)
#include <sched.h>
#endif

#include <cstdint>
#include <memory>
#include <thread>

namespace rlx {

// The CPU that this thread runs on, or -1 where the system does not tell.
inline int current_cpu() {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

using ThreadHandle = std::thread::native_handle_type;

// This thread; nothing where the system moves no thread.
ThreadHandle current_thread();

// Nanoseconds that this thread, or another one of the process, has run, up to now if it is running;
// -1 where the system does not tell.
int64_t cpu_time_ns();
int64_t cpu_time_ns(ThreadHandle thread);

// The CPUs that the thread which made it could use then.
class Affinity {
 public:
  Affinity();
  // How many; at least 1. Where the system does not tell, all of the machine's.
  int count() const;
  // Moves a thread, at once, to the CPUs of the set other than `cpu`, unless there is no other.
  void avoid(ThreadHandle thread, int cpu) const;
  // Moves a thread, at once, to `cpu` alone. False, and nothing is changed, if `cpu` is not
  // of the set, or where the system moves no thread.
  bool move(ThreadHandle thread, int cpu) const;

 private:
  struct Free {
    void operator()(void* set) const;
  };
  int cpus_ = 0;  // the size of the set; 0: unknown
  std::unique_ptr<void, Free> set_;
};

}  // namespace rlx
