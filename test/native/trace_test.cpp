#include "trace.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"
#include "pool.h"
#include "thread_count.h"

namespace rlx {
namespace {

constexpr size_t kRoom = 1 << 14;

std::vector<TraceEvent> recorded() {
  std::vector<TraceEvent> all;
  for (const Trace::Part& part : Trace::instance().snapshot().parts) {
    CHECK(part.thread != 0);
    all.insert(all.end(), part.events.begin(), part.events.end());
  }
  return all;
}

void nothing(int64_t, int64_t, void* const*, const int64_t*, void*) {}

void launch(int64_t range, uint32_t number) {
  Pool::instance().run({nothing, range, 1, 0, nullptr, nullptr, number});
}

TEST(without_a_session_nothing_is_recorded) {
  Trace::instance().stop();
  const size_t before = recorded().size();
  { const TraceSpan span(TraceKind::kRun, 1); }
  Trace::instance().record({now_ns(), now_ns(), 1, TraceKind::kRun, 0, 0});
  CHECK(!Trace::on());
  CHECK(recorded().size() == before);
}

TEST(chunks_cover_the_range_of_a_launch_once) {
  Pool::instance().set_threads(3);
  Trace::instance().start(kRoom);
  const int64_t began = now_ns();
  launch(1000, 7);
  const int64_t ended = now_ns();
  Trace::instance().stop();
  std::vector<TraceEvent> chunks = recorded();
  std::sort(chunks.begin(), chunks.end(),
            [](const TraceEvent& a, const TraceEvent& b) { return a.first < b.first; });
  int64_t next = 0;
  for (const TraceEvent& chunk : chunks) {
    CHECK(chunk.kind == TraceKind::kChunk && chunk.launch == 7);
    CHECK(chunk.first == next);
    CHECK(began <= chunk.begin && chunk.begin <= chunk.end && chunk.end <= ended);
    next = chunk.last;
  }
  CHECK(next == 1000);
  launch(1000, 7);
  CHECK(recorded().size() == chunks.size());
}

TEST(what_has_no_room_is_counted) {
  Trace::instance().start(1);  // rounded up to a part
  constexpr uint64_t kEvents = 10000;
  for (uint64_t i = 0; i < kEvents; ++i) {
    const TraceSpan span(TraceKind::kRun, 1);
  }
  const Trace::Snapshot full = Trace::instance().snapshot();
  CHECK(full.parts.size() == 1);
  CHECK(full.dropped > 0);
  CHECK(full.parts[0].events.size() + full.dropped == kEvents);
  Trace::instance().start(kRoom);
  CHECK(recorded().empty());
  Trace::instance().stop();
}

TEST(an_event_that_began_before_the_session_is_left_out) {
  const int64_t before = now_ns();
  Trace::instance().start(kRoom);
  Trace::instance().record({before - 1, now_ns(), 1, TraceKind::kLaunch, 0, 0});
  CHECK(recorded().empty());
  Trace::instance().stop();
}

// Sessions begin and end, and are read, while threads that come and go record in them.
TEST(sessions_change_while_threads_record) {
  Pool::instance().set_threads(3);
  std::atomic<bool> done{false};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&done] {
      while (!done.load()) {
        const TraceSpan span(TraceKind::kRun, 1);
        launch(16, 2);
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    Trace::instance().start(i % 2 == 0 ? kRoom : 600);
    std::thread([] { const TraceSpan span(TraceKind::kRun, 3); }).join();
    for (const TraceEvent& event : recorded()) {
      CHECK(event.launch >= 1 && event.launch <= 3 && event.begin <= event.end);
    }
    if (i % 3 == 0) Trace::instance().stop();
  }
  done.store(true);
  for (std::thread& caller : callers) caller.join();
  Trace::instance().stop();
}

}  // namespace
}  // namespace rlx
