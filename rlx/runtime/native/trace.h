// Tracing: which launch ran when and on which thread, recorded by the threads that run them.
//
// A session has one block of memory for all its events, which is cut into parts that threads claim
// without a lock. Full is full: further events are counted and dropped.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fork.h"

namespace rlx {

// The clock of traces and profiles, in nanoseconds.
inline int64_t now_ns() {
  using std::chrono::duration_cast, std::chrono::nanoseconds;
  return duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

enum class TraceKind : uint32_t {
  kRun,       // a call of a program; `launch` is its first
  kPrologue,  // the prologue steps that were due; `launch` is the first of all
  kLaunch,    // a launch, from its begin to the end of its last chunk
  kChunk,     // the part of a launch that one thread did: its indices [first, last)
};

// As Python reads it: see snapshot in _native.pyi.
struct TraceEvent {
  int64_t begin, end;  // of now_ns
  uint32_t launch;
  TraceKind kind;
  int64_t first, last;
};

class Trace final : public ForkAware {
 public:
  // What one thread recorded in one part of the memory.
  struct Part {
    int64_t thread;  // as the system numbers it
    int worker;      // of the pool, from 1; 0: another thread
    std::vector<TraceEvent> events;
  };
  struct Snapshot {
    std::vector<Part> parts;
    uint64_t dropped;
  };

  // The trace of this process. Never destroyed, as its threads may outlive static objects.
  static Trace& instance();

  // Whether events are wanted. One load: it stands on the path of every call.
  static bool on() { return current_.load(std::memory_order_relaxed) != 0; }

  // Begins a session with room for so many events, rounded up; what was recorded before is let go.
  void start(size_t capacity);
  // Ends the session. Its events can still be read.
  void stop() noexcept { current_.store(0, std::memory_order_relaxed); }
  // What was recorded so far, in the order in which each thread ended it.
  Snapshot snapshot();

  // Keeps an event of the calling thread, if a session is on and the event began in it. Takes no
  // lock but for a thread's first event of a session.
  void record(const TraceEvent& event) noexcept;

  // Says that the calling thread is a worker of the pool.
  static void name_worker(int number);

  // Tracing ends in a forked child.
  void reset_after_fork() noexcept override;

 private:
  struct Session;
  struct State;
  struct Writer;

  Trace();
  static Writer& writer();
  bool attach(Writer& writer) noexcept;

  static inline std::atomic<uint32_t> current_{0};  // number of the session; 0: none
  State* state_;
};

// Records the time from its making to its end, if tracing is on at both.
class TraceSpan {
 public:
  TraceSpan(TraceKind kind, uint32_t launch) {
    if (Trace::on()) event_ = {now_ns(), 0, launch, kind, 0, 0};
  }
  ~TraceSpan() {
    if (event_.begin == 0) return;
    event_.end = now_ns();
    Trace::instance().record(event_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceEvent event_{};
};

}  // namespace rlx
