#include "weights.h"

#include <mutex>
#include <string>
#include <utility>

#include "error.h"
#include "memory.h"

namespace rlx {

Weights::Weights(Prologue prologue)
    : prologue_((check_prologue(prologue), std::move(prologue))),
      frame_(kBaseFirstParam + prologue_.params.size() + prologue_.constants.size(),
             most_buffers(prologue_)),
      params_(prologue_.params.size()),
      stale_steps_(prologue_.steps.size(), true) {
  frame_.place(prologue_.constants, kBaseFirstParam + params_.size());
}

std::shared_ptr<void> Weights::set_param(size_t index, const void* data,
                                         std::shared_ptr<void> owner) {
  if (index >= params_.size()) {
    throw Error("set_param", "index " + std::to_string(index),
                "one below " + std::to_string(params_.size()));
  }
  std::lock_guard<Gate> alone(gate_);
  Param& param = params_[index];
  // Kernels get one table of writable pointers; those of params are only ever read.
  param.data = static_cast<std::byte*>(const_cast<void*>(data));
  param.set = true;
  std::swap(param.owner, owner);
  ++version_;
  for (size_t i = 0; i < prologue_.steps.size(); ++i) {
    for (int64_t followed : prologue_.steps[i].follows) {
      if (static_cast<size_t>(followed) == index) stale_steps_[i] = true;
    }
  }
  stale_ = true;
  return owner;
}

std::shared_lock<Gate> Weights::enter() {
  std::shared_lock<Gate> together(gate_);
  while (stale_) {  // again, if a param was set between the two locks
    together.unlock();
    refresh();
    together.lock();
  }
  return together;
}

void Weights::place(Frame& frame) const {
  frame.bases[kBasePacked] = packed_->data();
  for (size_t i = 0; i < params_.size(); ++i) frame.bases[kBaseFirstParam + i] = params_[i].data;
}

// Runs the prologue steps that are due, alone.
void Weights::refresh() {
  std::lock_guard<Gate> alone(gate_);
  if (!stale_) return;
  require_params();
  if (!packed_) {
    packed_.emplace(static_cast<size_t>(prologue_.packed_bytes) + kSlack);
    packed_->prefer_huge_pages();
  }
  place(frame_);
  frame_.error[0] = frame_.error[1] = 0;
  Executor executor(frame_);
  for (size_t i = 0; i < prologue_.steps.size(); ++i) {
    if (!stale_steps_[i]) continue;
    executor.run(prologue_.steps[i].step);
    if (frame_.error[0] != 0) throw Fault(frame_.error[0], frame_.error[1]);
    stale_steps_[i] = false;
  }
  stale_ = false;
  give_back_pages(file_.data, static_cast<size_t>(file_.bytes));
  file_.bytes = 0;  // once; its owner stays, since letting it go may take the GIL
}

void Weights::release_when_packed(Constant file) {
  std::lock_guard<Gate> alone(gate_);
  file_ = std::move(file);
}

void Weights::require_params() const {
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].set) continue;
    const Signature& wanted = prologue_.params[i];
    throw Error("param '" + wanted.name + "' (index " + std::to_string(i) + ")", "no value",
                wanted.type(), "set every param before the first call");
  }
}

}  // namespace rlx
