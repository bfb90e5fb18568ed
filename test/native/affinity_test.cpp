#include "affinity.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "check.h"
#include "futex.h"

namespace rlx {
namespace {

TEST(a_thread_leaves_the_cpu_that_it_avoids) {
  // A thread of its own, as the set stays with it.
  std::thread([] {
    const Affinity allowed;
    const int here = current_cpu();
    if (here < 0) return;
    allowed.avoid(current_thread(), here);
    if (allowed.count() == 1) {
      CHECK(Affinity().count() == 1);
      return;
    }
    CHECK(current_cpu() != here);
    CHECK(Affinity().count() == allowed.count() - 1);
    // What is avoided next may be used again afterwards.
    const int there = current_cpu();
    allowed.avoid(current_thread(), there);
    CHECK(current_cpu() != there);
    CHECK(Affinity().count() == allowed.count() - 1);
  }).join();
}

// A thread that waits in `sleep` or spins, until told to end.
class Waiting {
 public:
  explicit Waiting(bool sleeps) {
    thread_ = std::thread([this, sleeps] {
      while (!ended_.load()) {
        cpu_.store(current_cpu());
        if (sleeps && began_.load()) wait_while_equal(word_, 0);
        began_.store(true);
      }
    });
    while (!began_.load()) std::this_thread::yield();
  }
  ~Waiting() {
    ended_.store(true);
    word_.store(1);
    wake_all(word_);
    thread_.join();
  }

  ThreadHandle handle() { return thread_.native_handle(); }
  int cpu() const { return cpu_.load(); }

 private:
  std::atomic<bool> began_{false}, ended_{false};
  std::atomic<uint32_t> word_{0};
  std::atomic<int> cpu_{-1};
  std::thread thread_;
};

void pass(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(the_cpu_time_of_a_thread_moves_while_it_runs) {
  if (cpu_time_ns() < 0) return;
  const int64_t before = cpu_time_ns();
  while (cpu_time_ns() == before) {
  }
  Waiting spinning(false), sleeping(true);
  const int64_t awake = cpu_time_ns(spinning.handle());
  while (cpu_time_ns(spinning.handle()) == awake) {
  }
  bool still = false;
  for (int i = 0; i < 1000 && !still; ++i) {  // until it has fallen asleep
    const int64_t asleep = cpu_time_ns(sleeping.handle());
    pass(5);
    still = asleep > 0 && cpu_time_ns(sleeping.handle()) == asleep;
  }
  CHECK(still);
}

TEST(a_thread_moves_another_one_inside_its_set) {
  const Affinity allowed;
  Waiting spinning(false);
  for (int cpu = 0, found = 0; found < allowed.count(); ++cpu) {
    if (!allowed.move(spinning.handle(), cpu)) {
      if (current_cpu() < 0 || cpu > (1 << 20)) return;
      continue;
    }
    ++found;
    while (spinning.cpu() != cpu) pass(1);
  }
  for (int cpu : {-1, 1 << 30}) CHECK(!allowed.move(spinning.handle(), cpu));
}

TEST(no_cpu_is_none_to_avoid) {
  const Affinity allowed;
  for (int cpu : {-1, 1 << 30}) allowed.avoid(current_thread(), cpu);
  CHECK(Affinity().count() == allowed.count());
}

}  // namespace
}  // namespace rlx
