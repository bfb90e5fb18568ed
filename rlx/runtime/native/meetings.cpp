#include <cstring>

#include "executor.h"

namespace rlx {

namespace {

rlx_wait patience(int64_t limit_ns, Watch* watch) {
  rlx_wait wait{};
  wait.limit_ns = limit_ns;
  wait.late = -1;
  wait.asked = watch;
  if (watch != nullptr) {
    wait.ends = [](void* asked) { return static_cast<int>(static_cast<Watch*>(asked)->look()); };
  }
  return wait;
}

int put(const rlx_communicator& table, void* out, const void* data, int64_t bytes, rlx_wait* wait) {
  if (table.put != nullptr) return table.put(table.context, out, data, bytes, wait);
  std::memcpy(out, data, static_cast<size_t>(bytes));
  return RLX_COMM_OK;
}

int clear(const rlx_communicator& table, void* out, int64_t bytes, rlx_wait* wait) {
  if (table.put == nullptr) {
    std::memset(out, 0, static_cast<size_t>(bytes));
    return RLX_COMM_OK;
  }
  const std::vector<std::byte> zeros(static_cast<size_t>(bytes));
  return put(table, out, zeros.data(), bytes, wait);
}

int carry_out(const rlx_communicator& table, const Collective& step, const void* in, void* out,
              rlx_wait* wait) {
  const auto dtype = static_cast<int32_t>(step.dtype);
  const int64_t bytes = step.count * static_cast<int64_t>(kDTypes[step.dtype].size);
  void* self = table.context;
  switch (step.kind) {
    case kAllReduce:
      return table.all_reduce(self, in, out, step.count, dtype,
                              static_cast<int32_t>(step.reduction), wait);
    case kReduceScatter:
      return table.reduce_scatter(self, in, out, step.count, dtype, wait);
    case kAllGather:
      return table.all_gather(self, in, out, bytes, wait);
    case kAllToAll:
      return table.all_to_all(self, in, out, bytes, wait);
    case kBroadcast:
      return table.broadcast(self, in, out, bytes, static_cast<int32_t>(step.peers[0]), wait);
    case kPermute: {
      int32_t to = -1, from = -1;
      for (size_t i = 0; i < step.peers.size(); i += 2) {
        if (step.peers[i] == table.rank) to = static_cast<int32_t>(step.peers[i + 1]);
        if (step.peers[i + 1] == table.rank) from = static_cast<int32_t>(step.peers[i]);
      }
      if (from < 0) {
        const int status = clear(table, out, bytes, wait);
        if (status != RLX_COMM_OK) return status;
      }
      return table.permute(self, in, out, bytes, to, from, wait);
    }
    default: {
      const int64_t rank = table.rank;
      return put(table, out, &rank, sizeof rank, wait);
    }
  }
}

}  // namespace

Meetings::Meetings(const std::vector<const Collective*>& steps, uint64_t digest, Watch* watch)
    : limit_ns_(comm_limit_ns()) {
  for (const Collective* step : steps) {
    bool known = false;
    for (const auto& [first, group] : groups_) {
      known = known || (first->axis == step->axis && first->ranks == step->ranks);
    }
    if (!known) groups_.emplace_back(step, group_along(axis_of(*step), step->ranks));
  }
  for (const auto& [first, group] : groups_) {
    group->agree(digest, patience(limit_ns_, watch));
    if (group->beside) beside_ = &Beside::of_this_thread();  // for all: they run in their order
  }
}

void Meetings::move_to(const Gpu& gpu, Watch* watch) {
  for (auto& [first, group] : groups_) group = on_gpu(group, gpu, patience(limit_ns_, watch));
}

std::shared_ptr<Group> Meetings::group_of(const Collective& step) const {
  for (const auto& [first, group] : groups_) {
    if (first->axis == step.axis && first->ranks == step.ranks) return group;
  }
  return nullptr;
}

bool Meetings::run(const Collective& step, const void* source, void* target, rlx_wait wait,
                   std::string& why) const {
  const std::shared_ptr<Group> group = group_of(step);
  if (group == nullptr) {
    why = "no communicator";
    return false;
  }
  const int status = carry_out(group->table, step, source, target, &wait);
  if (status == RLX_COMM_OK) return true;
  why = comm_message(status, wait, *group);
  return false;
}

bool Meetings::run(const Collective& step, const void* source, void* target, Watch* watch,
                   std::string& why) const {
  return run(step, source, target, patience(limit_ns_, watch), why);
}

void Meetings::start(const Collective& step, const void* source, void* target) {
  started_.push_back({this, &step, source, target});
  if (beside_ != nullptr) beside_->give({&run_beside, &started_.back()});
}

void Meetings::run_beside(void* started) {
  const auto& [self, step, source, target] = *static_cast<Started*>(started);
  if (self->failed_ != nullptr) return;
  rlx_wait wait = patience(self->limit_ns_, nullptr);
  wait.asked = &self->ended_;
  wait.ends = [](void* asked) {
    return static_cast<int>(static_cast<std::atomic<bool>*>(asked)->load());
  };
  try {
    if (!self->run(*step, source, target, wait, self->why_)) self->failed_ = step;
  } catch (...) {  // no memory, say, which the caller is told
    self->failed_ = step;
    self->thrown_ = std::current_exception();
  }
}

const Collective* Meetings::finish(Watch* watch, std::string& why) {
  if (beside_ != nullptr) {
    while (!beside_->wait()) {
      if (watch != nullptr && watch->look()) ended_.store(true);
    }
  }
  const Collective* failed = std::exchange(failed_, nullptr);
  if (thrown_ != nullptr) {
    started_.clear();
    std::rethrow_exception(std::exchange(thrown_, nullptr));
  }
  if (failed != nullptr) why = why_;
  for (const Started& one : started_) {
    if (failed != nullptr) break;
    if (beside_ != nullptr) continue;
    if (!run(*one.step, one.source, one.target, watch, why)) failed = one.step;
  }
  started_.clear();
  return failed;
}

void Meetings::abandon() {
  if (started_.empty()) return;
  ended_.store(true);
  while (beside_ != nullptr && !beside_->wait()) continue;
  started_.clear();
}

bool Executor::run(const Collective& step) {
  if (ends()) return false;
  const void* source = step.source ? at(*step.source) : nullptr;
  if (step.apart) {
    meetings_->start(step, source, at(step.target));
    return true;
  }
  if (!run(Await{})) return false;
  return meetings_->run(step, source, at(step.target), watch_, frame_.detail) || failed(step);
}

bool Executor::run(const Await&) {
  if (meetings_ == nullptr) return true;
  const Collective* step = meetings_->finish(watch_, frame_.detail);
  return step == nullptr || failed(*step);
}

bool Executor::failed(const Collective& step) {
  if (watch_ != nullptr && watch_->ended()) return false;
  frame_.record.code = kFaultCollective;
  frame_.record.site = step.site;
  return false;
}

}  // namespace rlx
