#include "affinity.h"

#include <algorithm>
#include <cstring>
#include <thread>

#if defined(__linux__)
#include <pthread.h>
#include <time.h>
#endif

namespace rlx {

#if defined(__linux__)

namespace {

cpu_set_t* as_set(void* set) { return static_cast<cpu_set_t*>(set); }

int64_t read_ns(clockid_t clock) {
  timespec time;
  if (clock_gettime(clock, &time) != 0) return -1;
  return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}

}  // namespace

ThreadHandle current_thread() { return pthread_self(); }

int64_t cpu_time_ns() { return read_ns(CLOCK_THREAD_CPUTIME_ID); }

int64_t cpu_time_ns(ThreadHandle thread) {
  clockid_t clock;
  return pthread_getcpuclockid(thread, &clock) == 0 ? read_ns(clock) : -1;
}

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

void Affinity::avoid(ThreadHandle thread, int cpu) const {
  if (cpu < 0 || cpu >= cpus_) return;
  const size_t size = CPU_ALLOC_SIZE(cpus_);
  const std::unique_ptr<void, Free> others(CPU_ALLOC(cpus_));
  if (others == nullptr) return;
  std::memcpy(others.get(), set_.get(), size);
  CPU_CLR_S(static_cast<size_t>(cpu), size, as_set(others.get()));
  // A refusal (the last CPU was taken away meanwhile) leaves the thread where it is.
  if (CPU_COUNT_S(size, as_set(others.get())) > 0) {
    pthread_setaffinity_np(thread, size, as_set(others.get()));
  }
}

bool Affinity::move(ThreadHandle thread, int cpu) const {
  if (cpu < 0 || cpu >= cpus_) return false;
  const size_t size = CPU_ALLOC_SIZE(cpus_);
  const auto index = static_cast<size_t>(cpu);
  if (!CPU_ISSET_S(index, size, as_set(set_.get()))) return false;
  const std::unique_ptr<void, Free> only(CPU_ALLOC(cpus_));
  if (only == nullptr) return false;
  CPU_ZERO_S(size, as_set(only.get()));
  CPU_SET_S(index, size, as_set(only.get()));
  return pthread_setaffinity_np(thread, size, as_set(only.get())) == 0;
}

int Affinity::count() const {
  if (cpus_ == 0) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(1, CPU_COUNT_S(CPU_ALLOC_SIZE(cpus_), as_set(set_.get())));
}

#else

ThreadHandle current_thread() { return {}; }
int64_t cpu_time_ns() { return -1; }
int64_t cpu_time_ns(ThreadHandle) { return -1; }
void Affinity::Free::operator()(void*) const {}
Affinity::Affinity() = default;
void Affinity::avoid(ThreadHandle, int) const {}
bool Affinity::move(ThreadHandle, int) const { return false; }
int Affinity::count() const {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

#endif

}  // namespace rlx
