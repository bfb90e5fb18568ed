// Steps carried out on numbered memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "beside.h"
#include "error.h"
#include "group.h"
#include "nccl_communicator.h"
#include "pool.h"
#include "schedule.h"
#include "trace.h"
#include "watch.h"

namespace rlx {

// What one run of an entry has to itself: where each memory lies, and its record.
struct Frame {
  // For so many memories, and launches of at most so many buffers.
  Frame(size_t memories, size_t most_buffers) : bases(memories), buffers(most_buffers) {
    bases[kBaseError] = reinterpret_cast<std::byte*>(&record);
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // Places the constants from number `base` on.
  void place(const std::vector<Constant>& constants, size_t base) {
    // Kernels get one table of writable pointers; those of constants are only ever read.
    for (const Constant& constant : constants) {
      bases[base++] = static_cast<std::byte*>(const_cast<void*>(constant.data));
    }
  }

  std::vector<std::byte*> bases;  // by number
  std::vector<void*> buffers;     // of the launch in flight
  Record record;
  std::string detail;  // of a fault, where the site does not say all
};

// The groups that a run meets others in, and its collectives that are apart. Its functions are for
// one thread.
class Meetings {
 public:
  // Finds the groups for the collectives of a program, and has them agree upon it. Throws Error if
  // one is missing, or other ranks have another program.
  Meetings(const std::vector<const Collective*>& steps, uint64_t digest, Watch* watch);
  ~Meetings() { abandon(); }
  Meetings(const Meetings&) = delete;
  Meetings& operator=(const Meetings&) = delete;

  // From now on memory is that of a GPU, whose library connects the ranks. Throws Error.
  void move_to(const Gpu& gpu, Watch* watch);

  // Carries out a step; false with why it failed, or when the watch has ended the call.
  bool run(const Collective& step, const void* source, void* target, Watch* watch,
           std::string& why) const;

  // Begins a step that is apart: beside the caller, or in `finish`.
  void start(const Collective& step, const void* source, void* target);
  // Ends all that were started. Null, or the first that failed, with why, or when the watch has ended
  // the call; none behind that was run. Throws what one has thrown.
  const Collective* finish(Watch* watch, std::string& why);
  // Ends them soon, however they are.
  void abandon();

 private:
  struct Started {
    Meetings* meetings;
    const Collective* step;
    const void* source;
    void* target;
  };

  std::shared_ptr<Group> group_of(const Collective& step) const;
  // With how long to wait for others, and what ends that.
  bool run(const Collective& step, const void* source, void* target, rlx_wait wait,
           std::string& why) const;
  static void run_beside(void* started);

  std::vector<std::pair<const Collective*, std::shared_ptr<Group>>> groups_;  // the first of an axis
  int64_t limit_ns_;
  Beside* beside_ = nullptr;  // null: those that are started run in `finish`
  std::deque<Started> started_;
  // Of those beside; they are read once all have run.
  std::atomic<bool> ended_{false};
  const Collective* failed_ = nullptr;
  std::string why_;
  std::exception_ptr thrown_;
};

// What a launch took so far.
struct LaunchTime {
  std::atomic<uint64_t> nanoseconds{0}, calls{0};
};

// Walks steps on a frame. Every method returns false when the call must stop.
class Executor {
 public:
  // With `times`, a row of one for each launch from number `first` on, adds up what launches take.
  explicit Executor(Frame& frame, LaunchTime* times = nullptr, uint32_t first = 0,
                    Meetings* meetings = nullptr)
      : frame_(frame),
        meetings_(meetings),
        pool_(Pool::instance()),
        watch_(frame.record.watch),
        times_(times),
        first_(first),
        observed_(times != nullptr || Trace::on()) {}
  // What was started is on memory of the frame.
  ~Executor() {
    if (meetings_ != nullptr) meetings_->abandon();
  }

  // All steps of an entry.
  void run_all(const Steps& steps) {
    if (run(steps) && meetings_ != nullptr) run(Await{});
  }

  bool run(const Steps& steps) {
    for (const Step& step : steps) {
      if (!run(step)) return false;
    }
    return true;
  }

  bool run(const Step& step) {
    return std::visit([this](const auto& op) { return run(op); }, step.op);
  }

  // A launch in at most so many parts of its range, one after another, and `then` after each: their
  // results are those of the whole.
  template <class Then>
  bool run_in_parts(const Launch& launch, int64_t parts, Then then) {
    const int64_t range = launch.range(), each = range / parts + (range % parts != 0);
    for (int64_t first = 0; first < range; first += each) {
      if (!run(launch, first, std::min(each, range - first))) return false;
      then();
    }
    return true;
  }

 private:
  bool run(const Launch& launch) { return run(launch, 0, launch.range()); }

  bool run(const Launch& launch, int64_t first, int64_t range) {
    if (ends()) return false;
    for (size_t i = 0; i < launch.places.size(); ++i) frame_.buffers[i] = at(launch.places[i]);
    Task task{reinterpret_cast<Kernel>(launch.kernel), range, launch.grain(),
              static_cast<size_t>(launch.scratch_bytes()), frame_.buffers.data(),
              launch.sizes.data()};
    task.first = first;
    if (observed_) {
      observe(launch, task);
    } else {
      pool_.run(task);
    }
    return true;
  }

  void observe(const Launch& launch, Task task) {
    const bool traced = Trace::on();
    task.traced = traced ? launch.number : 0;
    const int64_t began = now_ns();
    pool_.run(task);
    const int64_t ended = now_ns();
    if (times_ != nullptr) {
      LaunchTime& time = times_[launch.number - first_];
      time.nanoseconds.fetch_add(static_cast<uint64_t>(ended - began), std::memory_order_relaxed);
      time.calls.fetch_add(1, std::memory_order_relaxed);
    }
    if (traced) {
      Trace::instance().record(
          {began, ended, launch.number, TraceKind::kLaunch, 0, task.range});
    }
  }

  bool run(const If& branch) {
    return run(holds(branch.flag) ? branch.then : branch.otherwise);
  }

  bool run(const While& loop) {
    for (int64_t iteration = 0;; ++iteration) {
      if (ends()) return false;  // its steps need not launch anything
      if (!run(loop.test)) return false;
      if (!holds(loop.flag)) return true;
      // A fault may have spoilt the condition for good.
      if (frame_.record.code != 0) return false;
      if (iteration == loop.limit) {
        frame_.record.code = kFaultLoopLimit;
        frame_.record.site = loop.site;
        return false;
      }
      if (!run(loop.body)) return false;
    }
  }

  bool run(const For& loop) {
    const size_t depth = depth_++;
    for (int64_t iteration = 0; iteration < loop.rounds; ++iteration) {
      if (ends()) return false;
      const int64_t round = loop.reverse ? loop.rounds - 1 - iteration : iteration;
      rounds_[depth] = round;
      if (loop.counter) std::memcpy(at(*loop.counter), &round, sizeof round);
      if (!run(loop.body)) return false;
    }
    --depth_;
    return true;
  }

  // In a file of their own: they are no part of a call without ranks.
  bool run(const Collective& step);
  bool run(const Await&);
  bool failed(const Collective& step);

  bool ends() { return watch_ != nullptr && watch_->ends(); }

  std::byte* at(const Ref& ref) const {
    int64_t offset = ref.offset;
    for (const Move& move : ref.moves) {
      offset += move.bytes * rounds_[static_cast<size_t>(move.loop)];
    }
    return frame_.bases[static_cast<size_t>(ref.base)] + offset;
  }

  bool holds(const Ref& flag) const { return *at(flag) != std::byte{0}; }

  Frame& frame_;
  Meetings* const meetings_;
  Pool& pool_;
  Watch* const watch_;
  LaunchTime* times_;
  uint32_t first_;
  size_t depth_ = 0;  // `for` steps around the step that runs
  std::array<int64_t, kMaxDepth + 1> rounds_;
  bool observed_;  // looked at once a run, so that a launch costs one branch more
};

}  // namespace rlx
