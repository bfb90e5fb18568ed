#include "watch.h"

#include <algorithm>

#if defined(__linux__)
#include <time.h>
#else
#include <chrono>
#endif

namespace rlx {

namespace {

// To end a call some time after it was asked to is soon enough for a person. Each time costs a turn
// with the GIL, for which a thread of Python bytecode lets others wait 5 ms.
constexpr int64_t kPeriodNs = 100'000'000;
constexpr int kMostLaunches = 16;
constexpr int64_t kRounds = 4096;

// Within some milliseconds, at a quarter of an exact clock's cost.
int64_t coarse_ns() {
#if defined(__linux__)
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
#else
  using std::chrono::duration_cast, std::chrono::nanoseconds;
  return duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
#endif
}

}  // namespace

bool Watch::look() {
  const int64_t now = coarse_ns();
  // Launches that are short are not each worth a look at the clock.
  const bool short_ones = now - seen_ns_ < 1'000'000;
  stride_ = short_ones ? std::min(2 * stride_, kMostLaunches) : 1;
  launches_left_ = stride_;
  seen_ns_ = now;
  if (due_ns_ == 0) {
    due_ns_ = now + kPeriodNs;
  } else if (now >= due_ns_ && !ended_) {
    ended_ = end_now();
    due_ns_ = coarse_ns() + kPeriodNs;
  }
  return ended_;
}

int64_t Record::watched_rounds(Record* record) {
  return record->watch != nullptr && record->watch->look() ? 0 : kRounds;
}

}  // namespace rlx
