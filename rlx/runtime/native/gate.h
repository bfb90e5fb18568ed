// A shared/exclusive lock: two atomic operations for a shared pass, writers preferred, and usable
// in a forked child whatever the parent's other threads were doing.
#pragma once

#include <atomic>
#include <cstdint>

#include "fork.h"
#include "futex.h"

namespace rlx {

// Satisfies the standard's BasicLockable and the shared half that std::shared_lock needs.
// A std::shared_mutex would let a steady stream of readers starve a writer.
class Gate final : public ForkAware {
 public:
  ~Gate() override = default;

  void lock_shared() {
    uint32_t seen = state_.load(std::memory_order_relaxed);
    for (;;) {
      if ((seen & kWriter) != 0) {
        wait_while_equal(state_, seen);
        seen = state_.load(std::memory_order_relaxed);
      } else if (state_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire,
                                              std::memory_order_relaxed)) {
        return;
      }
    }
  }

  void unlock_shared() {
    // Only the last reader that a writer waits for has someone to wake.
    if (state_.fetch_sub(1, std::memory_order_release) == (kWriter | 1)) wake_all(state_);
  }

  void lock() {
    uint32_t seen = state_.load(std::memory_order_relaxed);
    for (;;) {  // announce the writer; this alone keeps new readers out
      if ((seen & kWriter) != 0) {
        wait_while_equal(state_, seen);
        seen = state_.load(std::memory_order_relaxed);
      } else if (state_.compare_exchange_weak(seen, seen | kWriter, std::memory_order_acquire,
                                              std::memory_order_relaxed)) {
        break;
      }
    }
    while ((seen = state_.load(std::memory_order_acquire)) != kWriter) {
      wait_while_equal(state_, seen);
    }
  }

  void unlock() {
    state_.store(0, std::memory_order_release);
    wake_all(state_);
  }

  void reset_after_fork() noexcept override { state_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kWriter = 1u << 31;
  std::atomic<uint32_t> state_{0};  // kWriter, and the number of readers inside
};

}  // namespace rlx
