#include "program.h"

#include <memory>
#include <shared_mutex>
#include <string>
#include <utility>

#include "error.h"

namespace rlx {

struct Program::CallFrame : Frame {
  using Frame::Frame;

  // While a call is at work.
  std::unique_ptr<AlignedBuffer> arena;
  uint64_t weights_version = 0;  // of the weights in `bases`
};

Program::Program(std::shared_ptr<Weights> weights, Schedule schedule, Kernels kernels)
    : weights_(std::move(weights)),
      launches_(number_launches(schedule.main)),
      schedule_((check_schedule(schedule, weights_->prologue(), kernels), std::move(schedule))),
      first_constant_(kBaseFirstParam + weights_->prologue().params.size()),
      first_input_(first_constant_ + schedule_.constants.size()),
      most_buffers_(most_buffers(schedule_.main)),
      collectives_(collectives(schedule_.main)),
      digest_(collectives_.empty() ? 0 : collective_digest(schedule_.main)),
      times_(new LaunchTime[launches_.count]) {}

Program::~Program() = default;

void Program::run(void* const* inputs, void* const* outputs, Watch* watch) {
  const TraceSpan span(TraceKind::kRun, launches_.first);
  std::unique_ptr<Meetings> meetings;
  if (!collectives_.empty()) meetings = std::make_unique<Meetings>(collectives_, digest_, watch);
  std::unique_ptr<CallFrame> frame = take_frame();
  std::byte** io = frame->bases.data() + first_input_;
  for (size_t i = 0; i < schedule_.inputs.size(); ++i) *io++ = static_cast<std::byte*>(inputs[i]);
  for (size_t i = 0; i < schedule_.outputs.size(); ++i) *io++ = static_cast<std::byte*>(outputs[i]);

  std::shared_lock<Gate> together = weights_->enter(watch);
  if (frame->weights_version != weights_->version()) {
    weights_->place(*frame);
    frame->weights_version = weights_->version();
  }
  frame->record.watch = watch;
  LaunchTime* times = profiling_.load(std::memory_order_relaxed) ? times_.get() : nullptr;
  Executor(*frame, times, launches_.first, meetings.get()).run_all(schedule_.main);
  together.unlock();

  if (watch != nullptr && watch->ended()) throw Interrupted();
  const int64_t code = frame->record.code, site = frame->record.site;
  weights_->arenas().give(frame->arena.release());
  if (code == 0) {
    frames_.give(frame.release());
    return;
  }
  const std::string detail = std::exchange(frame->detail, {});
  frames_.give(frame.release());
  if (!detail.empty()) throw Fault(code, site, detail, detail);
  throw Fault(code, site);
}

// A frame that failed with an exception is not given back, so a frame is always whole.
std::unique_ptr<Program::CallFrame> Program::take_frame() {
  std::unique_ptr<CallFrame> frame(frames_.take());
  if (frame == nullptr) {
    frame = std::make_unique<CallFrame>(
        first_input_ + schedule_.inputs.size() + schedule_.outputs.size(), most_buffers_);
    frame->place(schedule_.constants, first_constant_);
  }
  frame->arena.reset(weights_->arenas().take());
  if (frame->arena == nullptr) frame->arena = std::make_unique<AlignedBuffer>();
  const auto bytes = static_cast<size_t>(schedule_.arena_bytes) + kSlack;
  frame->bases[kBaseArena] = frame->arena->reserve(bytes);
  if (frame->bases[kBaseArena] == nullptr) {
    throw Error("arena", "no memory", std::to_string(bytes) + " bytes for a call");
  }
  frame->record.code = frame->record.site = 0;
  return frame;
}

void Program::set_profiling(bool on) {
  for (uint32_t i = 0; on && i < launches_.count; ++i) {
    times_[i].nanoseconds.store(0, std::memory_order_relaxed);
    times_[i].calls.store(0, std::memory_order_relaxed);
  }
  profiling_.store(on, std::memory_order_relaxed);
}

}  // namespace rlx
