// A program: a schedule, its params and its packed memory, run from any number of threads at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gate.h"
#include "mapping.h"
#include "memory.h"
#include "schedule.h"

namespace rlx {

class Program {
 public:
  // Throws Error when the schedule is malformed.
  explicit Program(Schedule schedule);
  ~Program();

  const Schedule& schedule() const { return schedule_; }

  // Uses the memory at `data` in place as a param; `owner` keeps it alive. Waits for the calls in
  // flight. The prologue steps that follow the param are run again before the next call. Returns
  // the owner of what the param was before. Throws Error for an index out of range.
  std::shared_ptr<void> set_param(size_t index, const void* data, std::shared_ptr<void> owner);

  // One call. The pointers are those of the schedule's inputs and outputs, in order, each aligned
  // to its item and as large as its signature says. Throws Error when a param was never set or
  // memory ran out, and Fault when the call's error record is nonzero at the end. Allocates nothing
  // in steady state.
  void run(void* const* inputs, void* const* outputs);

  // Adds up the nanoseconds of each main step, from zero, while on.
  void set_profiling(bool on);
  std::vector<uint64_t> step_nanoseconds() const;

 private:
  struct Frame;
  class Executor;
  struct Param {
    std::byte* data = nullptr;
    std::shared_ptr<void> owner;
  };

  std::unique_ptr<Frame> take_frame();
  void refresh(Frame& frame);
  void require_params() const;
  void bind_params(Frame& frame) const;
  void run_main(Executor& executor);

  const Schedule schedule_;
  const size_t most_buffers_;
  FreeList<Frame> frames_;

  Gate gate_;  // shared: a call; exclusive: what changes the fields below
  std::vector<Param> params_;
  uint64_t params_version_ = 1;  // frames copy the pointers when it has changed
  std::optional<Mapping> packed_;
  bool stale_ = true;  // the prologue, or a check of the params, is due
  std::vector<bool> prologue_stale_;

  std::atomic<bool> profiling_{false};
  std::unique_ptr<std::atomic<uint64_t>[]> step_nanoseconds_;
};

}  // namespace rlx
