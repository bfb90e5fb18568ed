#include "affinity.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace rlx {

#if defined(__linux__)

namespace {

cpu_set_t* as_set(void* set) { return static_cast<cpu_set_t*>(set); }

}  // namespace

void Affinity::Free::operator()(void* set) const { CPU_FREE(as_set(set)); }

Affinity::Affinity() {
  // The kernel refuses a set smaller than its own, so grow until it fits.
  for (int cpus = 1024; cpus <= (1 << 20); cpus *= 2) {
    set_.reset(CPU_ALLOC(cpus));
    if (set_ == nullptr) return;
    if (sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), as_set(set_.get())) == 0) {
      cpus_ = cpus;
      return;
    }
  }
}

void Affinity::avoid(int cpu) const {
  if (cpu < 0 || cpu >= cpus_) return;
  const size_t size = CPU_ALLOC_SIZE(cpus_);
  const std::unique_ptr<void, Free> others(CPU_ALLOC(cpus_));
  if (others == nullptr) return;
  std::memcpy(others.get(), set_.get(), size);
  CPU_CLR_S(static_cast<size_t>(cpu), size, as_set(others.get()));
  // A refusal (the last CPU was taken away meanwhile) leaves the thread where it is.
  if (CPU_COUNT_S(size, as_set(others.get())) > 0) {
    sched_setaffinity(0, size, as_set(others.get()));
  }
}

int Affinity::count() const {
  if (cpus_ == 0) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(1, CPU_COUNT_S(CPU_ALLOC_SIZE(cpus_), as_set(set_.get())));
}

#else

void Affinity::Free::operator()(void*) const {}
Affinity::Affinity() = default;
void Affinity::avoid(int) const {}
int Affinity::count() const {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

#endif

}  // namespace rlx
