#include "program.h"

#include <chrono>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "error.h"

namespace rlx {

// What one call has to itself.
struct Program::Frame {
  AlignedBuffer arena;
  std::vector<std::byte*> bases;  // by base number
  std::vector<void*> buffers;     // of the launch in flight
  uint64_t params_version = 0;    // of the params in `bases`
  int64_t error[2] = {0, 0};      // code, site
};

// Walks steps on a frame. Every method returns false when the call must stop.
class Program::Executor {
 public:
  explicit Executor(Frame& frame) : frame_(frame), pool_(Pool::instance()) {}

  bool run(const Steps& steps) {
    for (const Step& step : steps) {
      if (!run(step)) return false;
    }
    return true;
  }

  bool run(const Step& step) {
    return std::visit([this](const auto& op) { return run(op); }, step.op);
  }

 private:
  bool run(const Launch& launch) {
    for (size_t i = 0; i < launch.buffers.size(); ++i) frame_.buffers[i] = at(launch.buffers[i]);
    pool_.run({reinterpret_cast<Kernel>(launch.kernel), launch.range, launch.grain,
               static_cast<size_t>(launch.scratch_bytes), frame_.buffers.data(),
               launch.sizes.data()});
    return true;
  }

  bool run(const If& branch) {
    return run(holds(branch.condition) ? branch.then_steps : branch.else_steps);
  }

  bool run(const While& loop) {
    for (int64_t iteration = 0;; ++iteration) {
      if (!run(loop.condition_steps)) return false;
      if (!holds(loop.condition)) return true;
      // A fault may have spoilt the condition for good.
      if (frame_.error[0] != 0) return false;
      if (iteration == loop.max_iterations) {
        frame_.error[0] = kFaultLoopLimit;
        frame_.error[1] = loop.site;
        return false;
      }
      if (!run(loop.body)) return false;
    }
  }

  bool run(const For& loop) {
    for (int64_t iteration = 0; iteration < loop.count; ++iteration) {
      if (loop.counts) std::memcpy(at(loop.counter), &iteration, sizeof iteration);
      if (!run(loop.body)) return false;
    }
    return true;
  }

  std::byte* at(const Ref& ref) const {
    return frame_.bases[static_cast<size_t>(ref.base)] + ref.offset;
  }

  bool holds(const Ref& condition) const { return *at(condition) != std::byte{0}; }

  Frame& frame_;
  Pool& pool_;
};

Program::Program(Schedule schedule)
    : schedule_((check_schedule(schedule), std::move(schedule))),
      most_buffers_(most_buffers(schedule_)),
      params_(schedule_.params.size()),
      prologue_stale_(schedule_.prologue.size(), true),
      step_nanoseconds_(new std::atomic<uint64_t>[schedule_.main.size()]()) {}

Program::~Program() = default;

std::shared_ptr<void> Program::set_param(size_t index, const void* data,
                                         std::shared_ptr<void> owner) {
  if (index >= params_.size()) {
    throw Error("set_param", "index " + std::to_string(index),
                "one below " + std::to_string(params_.size()));
  }
  std::lock_guard<Gate> alone(gate_);
  Param& param = params_[index];
  // Kernels get one table of writable pointers; those of params are only ever read.
  param.data = static_cast<std::byte*>(const_cast<void*>(data));
  std::swap(param.owner, owner);
  ++params_version_;
  for (size_t i = 0; i < schedule_.prologue.size(); ++i) {
    for (int64_t followed : schedule_.prologue[i].follows) {
      if (static_cast<size_t>(followed) == index) prologue_stale_[i] = true;
    }
  }
  stale_ = true;
  return owner;
}

void Program::run(void* const* inputs, void* const* outputs) {
  std::unique_ptr<Frame> frame = take_frame();
  std::byte** io = frame->bases.data() + kBaseFirstParam + params_.size();
  for (size_t i = 0; i < schedule_.inputs.size(); ++i) *io++ = static_cast<std::byte*>(inputs[i]);
  for (size_t i = 0; i < schedule_.outputs.size(); ++i) *io++ = static_cast<std::byte*>(outputs[i]);

  std::shared_lock<Gate> together(gate_);
  while (stale_) {  // again, if a param was set between the two locks
    together.unlock();
    refresh(*frame);
    together.lock();
  }
  bind_params(*frame);
  Executor executor(*frame);
  run_main(executor);
  together.unlock();

  const int64_t code = frame->error[0], site = frame->error[1];
  frames_.give(frame.release());
  if (code != 0) throw Fault(code, site);
}

void Program::run_main(Executor& executor) {
  if (!profiling_.load(std::memory_order_relaxed)) {
    executor.run(schedule_.main);
    return;
  }
  using Clock = std::chrono::steady_clock;
  Clock::time_point last = Clock::now();
  for (size_t i = 0; i < schedule_.main.size(); ++i) {
    const bool goes_on = executor.run(schedule_.main[i]);
    const Clock::time_point now = Clock::now();
    const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(now - last).count();
    step_nanoseconds_[i].fetch_add(static_cast<uint64_t>(spent), std::memory_order_relaxed);
    last = now;
    if (!goes_on) return;
  }
}

// A frame that failed with an exception is not given back, so a frame is always whole.
std::unique_ptr<Program::Frame> Program::take_frame() {
  std::unique_ptr<Frame> frame(frames_.take());
  if (frame == nullptr) {
    frame = std::make_unique<Frame>();
    const auto bytes = static_cast<size_t>(schedule_.arena_bytes) + kSlack;
    if (frame->arena.reserve(bytes) == nullptr) {
      throw Error("arena", "no memory", std::to_string(bytes) + " bytes for a call");
    }
    frame->buffers.resize(most_buffers_);
    frame->bases.resize(kBaseFirstParam + schedule_.params.size() + schedule_.inputs.size() +
                        schedule_.outputs.size());
    frame->bases[kBaseArena] = frame->arena.data();
    frame->bases[kBaseError] = reinterpret_cast<std::byte*>(frame->error);
  }
  frame->error[0] = frame->error[1] = 0;
  return frame;
}

// Runs the prologue steps that are due, alone.
void Program::refresh(Frame& frame) {
  std::lock_guard<Gate> alone(gate_);
  if (!stale_) return;
  require_params();
  if (!packed_) {
    packed_.emplace(static_cast<size_t>(schedule_.packed_bytes) + kSlack);
    packed_->prefer_huge_pages();
  }
  bind_params(frame);
  Executor executor(frame);
  for (size_t i = 0; i < schedule_.prologue.size(); ++i) {
    if (!prologue_stale_[i]) continue;
    executor.run(schedule_.prologue[i].step);
    if (frame.error[0] != 0) throw Fault(frame.error[0], frame.error[1]);
    prologue_stale_[i] = false;
  }
  stale_ = false;
}

void Program::require_params() const {
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].owner != nullptr || params_[i].data != nullptr) continue;
    const Signature& wanted = schedule_.params[i];
    throw Error("param '" + wanted.name + "' (index " + std::to_string(i) + ")", "no value",
                wanted.type(), "set every param before the first call");
  }
}

void Program::bind_params(Frame& frame) const {
  if (frame.params_version == params_version_) return;
  for (size_t i = 0; i < params_.size(); ++i) frame.bases[kBaseFirstParam + i] = params_[i].data;
  frame.bases[kBasePacked] = packed_->data();
  frame.params_version = params_version_;
}

void Program::set_profiling(bool on) {
  for (size_t i = 0; on && i < schedule_.main.size(); ++i) {
    step_nanoseconds_[i].store(0, std::memory_order_relaxed);
  }
  profiling_.store(on, std::memory_order_relaxed);
}

std::vector<uint64_t> Program::step_nanoseconds() const {
  std::vector<uint64_t> times;
  for (size_t i = 0; i < schedule_.main.size(); ++i) {
    times.push_back(step_nanoseconds_[i].load(std::memory_order_relaxed));
  }
  return times;
}

}  // namespace rlx
