#include "trace.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <thread>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__APPLE__)
#include <pthread.h>
#endif

namespace rlx {

namespace {

constexpr uint32_t kPartEvents = 512;

int64_t thread_id() {
#if defined(__linux__)
  return syscall(SYS_gettid);
#elif defined(__APPLE__)
  uint64_t id = 0;
  pthread_threadid_np(nullptr, &id);
  return static_cast<int64_t>(id);
#else
  return static_cast<int64_t>(std::hash<std::thread::id>()(std::this_thread::get_id()) >> 1);
#endif
}

}  // namespace

struct Trace::Session {
  // What a part holds. Its thread alone writes it; `count` tells others how much there is.
  struct Head {
    int64_t thread = 0;
    int worker = 0;
    std::atomic<uint32_t> count{0};
  };

  Session(uint32_t number, size_t parts)
      : number(number),
        parts(parts),
        heads(new Head[parts]),
        events(new TraceEvent[parts * kPartEvents]) {}

  const uint32_t number;
  const int64_t began = now_ns();
  const size_t parts;
  const std::unique_ptr<Head[]> heads;
  const std::unique_ptr<TraceEvent[]> events;  // not initialised: pages are taken as they are used
  std::atomic<size_t> claimed{0};
  std::atomic<uint64_t> dropped{0};
};

struct Trace::State {
  std::mutex mutex;
  std::shared_ptr<Session> session;
};

// A thread's place in a session. It keeps the session alive, so that a thread that is late writes
// to memory that is still there.
struct Trace::Writer {
  std::shared_ptr<Session> session;
  Session::Head* head = nullptr;
  TraceEvent* events = nullptr;
  uint32_t count = 0;
  int worker = 0;

  // A part with room; false when all are taken.
  bool claim() noexcept {
    if (head != nullptr && count < kPartEvents) return true;
    if (session->claimed.load(std::memory_order_relaxed) >= session->parts) return false;
    const size_t part = session->claimed.fetch_add(1, std::memory_order_relaxed);
    if (part >= session->parts) return false;
    head = &session->heads[part];
    head->thread = thread_id();
    head->worker = worker;
    events = &session->events[part * kPartEvents];
    count = 0;
    return true;
  }
};

Trace::Trace() : state_(new State) {}

Trace& Trace::instance() {
  static Trace* trace = new Trace;
  return *trace;
}

Trace::Writer& Trace::writer() {
  thread_local Writer writer;
  return writer;
}

void Trace::name_worker(int number) { writer().worker = number; }

void Trace::start(size_t capacity) {
  const size_t parts = std::max<size_t>(1, (capacity + kPartEvents - 1) / kPartEvents);
  // Numbers go on in a forked child: a writer there may still hold a session of the parent.
  static std::atomic<uint32_t> sessions{0};
  const uint32_t number = sessions.fetch_add(1, std::memory_order_relaxed) + 1;
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->session = std::make_shared<Session>(number, parts);
  current_.store(number, std::memory_order_relaxed);
}

Trace::Snapshot Trace::snapshot() {
  std::shared_ptr<Session> session;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    session = state_->session;
  }
  Snapshot found{{}, 0};
  if (session == nullptr) return found;
  const size_t parts = std::min(session->claimed.load(std::memory_order_relaxed), session->parts);
  for (size_t i = 0; i < parts; ++i) {
    const Session::Head& head = session->heads[i];
    const uint32_t count = head.count.load(std::memory_order_acquire);
    if (count == 0) continue;
    const TraceEvent* events = &session->events[i * kPartEvents];
    found.parts.push_back({head.thread, head.worker, {events, events + count}});
  }
  found.dropped = session->dropped.load(std::memory_order_relaxed);
  return found;
}

void Trace::record(const TraceEvent& event) noexcept {
  const uint32_t number = current_.load(std::memory_order_relaxed);
  if (number == 0) return;
  Writer& to = writer();
  if ((to.session == nullptr || to.session->number != number) && !attach(to)) return;
  if (event.begin < to.session->began) return;
  if (!to.claim()) {
    to.session->dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  to.events[to.count++] = event;
  to.head->count.store(to.count, std::memory_order_release);
}

// Moves a writer to the session that is on; false if there is none.
bool Trace::attach(Writer& writer) noexcept {
  std::lock_guard<std::mutex> lock(state_->mutex);
  writer.session = state_->session;
  writer.head = nullptr;
  return writer.session != nullptr;
}

// Another thread may have held the mutex: the child starts with a state of its own.
void Trace::reset_after_fork() noexcept {
  current_.store(0, std::memory_order_relaxed);
  state_ = new State;
}

}  // namespace rlx
