// Which CPUs a thread may run on, and which one it runs on.
#pragma once

#if defined(__linux__)
#include <sched.h>
#endif

#include <memory>

namespace rlx {

// The CPU that this thread runs on, or -1 where the system does not tell.
inline int current_cpu() {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

// The CPUs that the thread which made it could use then.
class Affinity {
 public:
  Affinity();
  // How many; at least 1. Where the system does not tell, all of the machine's.
  int count() const;
  // Moves this thread, at once, to the CPUs of the set other than `cpu`, unless there is no other.
  void avoid(int cpu) const;

 private:
  struct Free {
    void operator()(void* set) const;
  };
  int cpus_ = 0;  // the size of the set; 0: unknown
  std::unique_ptr<void, Free> set_;
};

}  // namespace rlx
