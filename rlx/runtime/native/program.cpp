#include "program.h"

#include <chrono>
#include <shared_mutex>
#include <string>
#include <utility>

#include "error.h"

namespace rlx {

struct Program::CallFrame : Frame {
  using Frame::Frame;

  AlignedBuffer arena;
  uint64_t weights_version = 0;  // of the weights in `bases`
};

Program::Program(std::shared_ptr<Weights> weights, Schedule schedule)
    : weights_(std::move(weights)),
      schedule_((check_schedule(schedule, weights_->prologue()), std::move(schedule))),
      first_constant_(kBaseFirstParam + weights_->prologue().params.size()),
      first_input_(first_constant_ + schedule_.constants.size()),
      most_buffers_(most_buffers(schedule_.main)),
      step_nanoseconds_(new std::atomic<uint64_t>[schedule_.main.size()]()) {}

Program::~Program() = default;

void Program::run(void* const* inputs, void* const* outputs) {
  std::unique_ptr<CallFrame> frame = take_frame();
  std::byte** io = frame->bases.data() + first_input_;
  for (size_t i = 0; i < schedule_.inputs.size(); ++i) *io++ = static_cast<std::byte*>(inputs[i]);
  for (size_t i = 0; i < schedule_.outputs.size(); ++i) *io++ = static_cast<std::byte*>(outputs[i]);

  std::shared_lock<Gate> together = weights_->enter();
  if (frame->weights_version != weights_->version()) {
    weights_->place(*frame);
    frame->weights_version = weights_->version();
  }
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
std::unique_ptr<Program::CallFrame> Program::take_frame() {
  std::unique_ptr<CallFrame> frame(frames_.take());
  if (frame == nullptr) {
    frame = std::make_unique<CallFrame>(
        first_input_ + schedule_.inputs.size() + schedule_.outputs.size(), most_buffers_);
    const auto bytes = static_cast<size_t>(schedule_.arena_bytes) + kSlack;
    if (frame->arena.reserve(bytes) == nullptr) {
      throw Error("arena", "no memory", std::to_string(bytes) + " bytes for a call");
    }
    frame->bases[kBaseArena] = frame->arena.data();
    frame->place(schedule_.constants, first_constant_);
  }
  frame->error[0] = frame->error[1] = 0;
  return frame;
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
