// A program: a schedule on weights, run from any number of threads at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "executor.h"
#include "memory.h"
#include "schedule.h"
#include "weights.h"

namespace rlx {

class Program {
 public:
  // Throws Error when the schedule is malformed or does not fit the weights.
  Program(std::shared_ptr<Weights> weights, Schedule schedule,
          Kernels kernels = Kernels::kAddresses);
  ~Program();

  const Schedule& schedule() const { return schedule_; }

  // One call. The pointers are those of the schedule's inputs and outputs, in order, each aligned
  // to its item and as large as its signature says. Throws Error when a param was never set or
  // memory ran out, Fault when the call's error record is nonzero at the end, and Interrupted when
  // `watch` ended it; then the outputs are unspecified. Allocates nothing in steady state.
  void run(void* const* inputs, void* const* outputs, Watch* watch = nullptr);

  // Adds up the nanoseconds and the number of calls of each launch, from zero, while on.
  void set_profiling(bool on);
  // By the order of `launches`.
  const LaunchTime* launch_times() const { return times_.get(); }
  const LaunchNumbers& launches() const { return launches_; }

 private:
  struct CallFrame;

  std::unique_ptr<CallFrame> take_frame();

  const std::shared_ptr<Weights> weights_;
  const LaunchNumbers launches_;
  const Schedule schedule_;
  const size_t first_constant_, first_input_;  // numbers of memories
  const size_t most_buffers_;
  const std::vector<const Collective*> collectives_;
  const uint64_t digest_;  // of these
  FreeList<CallFrame> frames_;

  std::atomic<bool> profiling_{false};
  std::unique_ptr<LaunchTime[]> times_;
};

}  // namespace rlx
