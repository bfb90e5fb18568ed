#include "beside.h"

#include <chrono>
#include <memory>

namespace rlx {

Beside& Beside::of_this_thread() {
  thread_local std::unique_ptr<Beside> beside;
  if (beside == nullptr) beside.reset(new Beside);
  return *beside;
}

Beside::Beside() : state_(new State) {}

Beside::~Beside() {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->ends = true;
  }
  state_->given.notify_one();
  if (state_->thread.joinable()) state_->thread.join();
  delete state_;
}

void Beside::give(Task task) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (!state_->thread.joinable()) state_->thread = std::thread([this] { work(); });
  state_->tasks.push_back(task);
  state_->given.notify_one();
}

bool Beside::wait() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  return state_->done.wait_for(lock, std::chrono::milliseconds(10),
                               [&] { return state_->tasks.empty(); });
}

void Beside::work() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  for (;;) {
    state_->given.wait(lock, [&] { return state_->ends || !state_->tasks.empty(); });
    if (state_->tasks.empty()) return;
    const Task task = state_->tasks.front();
    lock.unlock();
    task.function(task.argument);
    lock.lock();
    state_->tasks.pop_front();
    if (state_->tasks.empty()) state_->done.notify_one();
  }
}

// The thread is gone, and what it held may be locked for good.
void Beside::reset_after_fork() noexcept { state_ = new State; }

}  // namespace rlx
