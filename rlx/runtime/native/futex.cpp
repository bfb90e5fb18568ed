#include "futex.h"

#include <limits>

#if defined(__linux__) && !defined(RLX_NO_FUTEX)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#else
#include <chrono>
#include <condition_variable>
#include <mutex>
#endif

namespace rlx {

#if defined(__linux__) && !defined(RLX_NO_FUTEX)

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is a plain 32-bit word");

void wait_while_equal(std::atomic<uint32_t>& word, uint32_t value, int64_t at_most_ns) {
  const timespec time = {static_cast<time_t>(at_most_ns / 1000000000),
                         static_cast<long>(at_most_ns % 1000000000)};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value,
          at_most_ns >= 0 ? &time : nullptr, nullptr, 0);
}

void wake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr,
          nullptr, 0);
}

#else

namespace {

// One lot for all words: waits are rare (they follow a spin), so sharing costs only spurious wakes.
// Never destroyed, since sleeping workers outlive static destructors.
struct ParkingLot {
  std::mutex mutex;
  std::condition_variable changed;
};

ParkingLot& parking_lot() {
  static ParkingLot* lot = new ParkingLot;
  return *lot;
}

}  // namespace

void wait_while_equal(std::atomic<uint32_t>& word, uint32_t value, int64_t at_most_ns) {
  ParkingLot& lot = parking_lot();
  std::unique_lock<std::mutex> lock(lot.mutex);
  if (word.load(std::memory_order_seq_cst) != value) return;
  if (at_most_ns >= 0) {
    lot.changed.wait_for(lock, std::chrono::nanoseconds(at_most_ns));
  } else {
    lot.changed.wait(lock);
  }
}

void wake(std::atomic<uint32_t>&, int) {
  ParkingLot& lot = parking_lot();
  // Taking the lock orders this wake after a waiter's check, so that no wake is lost.
  {
    std::lock_guard<std::mutex> lock(lot.mutex);
  }
  lot.changed.notify_all();
}

#endif

void wake_all(std::atomic<uint32_t>& word) { wake(word, std::numeric_limits<int>::max()); }

}  // namespace rlx
