#include "weights.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "error.h"
#include "memory.h"

namespace rlx {

Weights::Weights(Prologue prologue)
    : launches_(number_launches(prologue)),
      prologue_((check_prologue(prologue), std::move(prologue))),
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

std::shared_lock<Gate> Weights::enter(Watch* watch) {
  std::shared_lock<Gate> together(gate_);
  while (stale_) {  // again, if a param was set between the two locks
    together.unlock();
    refresh(watch);
    together.lock();
  }
  return together;
}

void Weights::place(Frame& frame) const {
  frame.bases[kBasePacked] = packed_;
  for (size_t i = 0; i < params_.size(); ++i) frame.bases[kBaseFirstParam + i] = params_[i].data;
}

void Weights::use_packed(Constant packed) {
  const int64_t wanted = prologue_.packed_bytes + static_cast<int64_t>(kSlack);
  if (packed.bytes != wanted) {
    throw Error("packed", std::to_string(packed.bytes) + " bytes", std::to_string(wanted));
  }
  std::lock_guard<Gate> alone(gate_);
  // Kernels only read what no step is due to write.
  packed_ = static_cast<std::byte*>(const_cast<void*>(packed.data));
  given_ = std::move(packed);
  own_.reset();
  std::fill(stale_steps_.begin(), stale_steps_.end(), false);
  if (reinterpret_cast<uintptr_t>(packed_) % kCacheLine != 0) make_writable();
  stale_ = true;
  ++version_;
}

const std::byte* Weights::packed() {
  const std::shared_lock<Gate> together = enter();
  return packed_;
}

// Sees to memory of the process for what is packed, with what is packed already.
void Weights::make_writable() {
  if (own_) return;
  own_.emplace(static_cast<size_t>(prologue_.packed_bytes) + kSlack);
  own_->prefer_huge_pages();
  if (packed_ != nullptr) {
    std::memcpy(own_->data(), packed_, static_cast<size_t>(prologue_.packed_bytes));
    FilePages().release(given_.data, static_cast<size_t>(given_.bytes));
    given_.bytes = 0;  // its owner stays, since letting it go may take the GIL
  }
  packed_ = own_->data();
}

// Runs a step, whose params of mapped files lose their pages as it goes on.
void Weights::run_step(Executor& executor, const PrologueStep& step, const FilePages& files) const {
  // A part has at least so many bytes of params. Where each part reads all of them, as in a
  // transpose, all pages are found again for each: so there are few parts.
  constexpr int64_t kPart = int64_t{8} << 20, kMostParts = 8;
  const auto* launch = std::get_if<Launch>(&step.step.op);
  int64_t mapped = 0;
  for (int64_t followed : step.follows) {
    const int64_t bytes = prologue_.params[followed].bytes();
    if (files.has(params_[followed].data, static_cast<size_t>(bytes))) mapped += bytes;
  }
  if (launch == nullptr || mapped <= kPart) {
    executor.run(step.step);
    return;
  }
  executor.run_in_parts(*launch, std::min(mapped / kPart, kMostParts), [&] {
    for (int64_t followed : step.follows) {
      files.release(params_[followed].data, prologue_.params[followed].bytes());
    }
  });
}

// Runs the prologue steps that are due, alone.
void Weights::refresh(Watch* watch) {
  std::lock_guard<Gate> alone(gate_);
  if (!stale_) return;
  require_params();
  const TraceSpan span(TraceKind::kPrologue, launches_.first);
  const bool due = std::find(stale_steps_.begin(), stale_steps_.end(), true) != stale_steps_.end();
  if (packed_ == nullptr || due) make_writable();
  place(frame_);
  frame_.record.code = frame_.record.site = 0;
  frame_.record.watch = watch;
  // A param of a mapped file is not needed again when it is packed. Its pages go at once: together
  // they would take as much memory as what is packed from them. Those of a large one go while it is
  // packed, as each is read for a part of the range and would be read again if it were needed.
  const FilePages files;
  std::vector<size_t> readers(params_.size());
  for (size_t i = 0; i < prologue_.steps.size(); ++i) {
    if (!stale_steps_[i]) continue;
    for (int64_t followed : prologue_.steps[i].follows) ++readers[followed];
  }
  Executor executor(frame_);
  for (size_t i = 0; i < prologue_.steps.size(); ++i) {
    if (!stale_steps_[i]) continue;
    const PrologueStep& step = prologue_.steps[i];
    run_step(executor, step, files);
    if (watch != nullptr && watch->ended()) throw Interrupted();
    if (frame_.record.code != 0) throw Fault(frame_.record.code, frame_.record.site);
    stale_steps_[i] = false;
    for (int64_t followed : step.follows) {
      if (--readers[followed] != 0) continue;
      files.release(params_[followed].data, prologue_.params[followed].bytes());
    }
  }
  stale_ = false;
  if (due) give_back_pages(file_.data, static_cast<size_t>(file_.bytes));
  file_.bytes = 0;  // once; its owner stays, since letting it go may take the GIL
}

void Weights::release_when_packed(Constant file) {
  std::lock_guard<Gate> alone(gate_);
  file_ = std::move(file);
}

// Whether a call or a step that is due reads a param.
bool Weights::is_needed(size_t param) const {
  if (!prologue_.only_packed(param)) return true;
  for (size_t i = 0; i < prologue_.steps.size(); ++i) {
    const std::vector<int64_t>& follows = prologue_.steps[i].follows;
    const auto wanted = static_cast<int64_t>(param);
    if (stale_steps_[i] && std::find(follows.begin(), follows.end(), wanted) != follows.end()) {
      return true;
    }
  }
  return false;
}

void Weights::require_params() const {
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].set || !is_needed(i)) continue;
    const Signature& wanted = prologue_.params[i];
    if (prologue_.only_packed(i)) {
      throw Error("param '" + wanted.name + "' (index " + std::to_string(i) + ")",
                  "only what it was packed into, with a param that was set anew", wanted.type(),
                  "set this one anew too");
    }
    throw Error("param '" + wanted.name + "' (index " + std::to_string(i) + ")", "no value",
                wanted.type(), "set every param before the first call");
  }
}

}  // namespace rlx
