#include "pool.h"

#include <algorithm>
#include <system_error>

#if !defined(_WIN32)
#include <signal.h>
#endif

#include "error.h"
#include "futex.h"
#include "mapping.h"
#include "thread_count.h"
#include "trace.h"

namespace rlx {

namespace {

constexpr int kChunkBits = 16;
constexpr uint64_t kChunkMask = (uint64_t{1} << kChunkBits) - 1;
// Chunks for each thread: enough to even out threads of unequal speed.
constexpr int64_t kChunksPerThread = 8;
static_assert(kChunksPerThread * kMaxThreads <= static_cast<int64_t>(kChunkMask));

// How often to look before sleeping: some 100 microseconds, the gap between two launches of a
// program that has a serial step between them. A caller looks less long, as the worker it waits
// for may need this very CPU.
constexpr int kWorkerSpins = 3000;
constexpr int kCallerSpins = 1000;
// How long a thread's CPU time is watched: a few microseconds.
constexpr int kJudgeSpins = 100;
// A worker may be put aside after its caller has looked, so the caller looks again, each time after
// about as long as it has waited.
constexpr int64_t kFirstNapNs = 100'000;

std::byte* thread_scratch(size_t bytes) {
  thread_local AlignedBuffer scratch;
  return scratch.reserve(bytes);
}

// An error at a launch, before which others of the call may have run.
[[noreturn]] void fail_at_launch(Error error) {
  error.partly_run = true;
  throw error;
}

// False when there is no memory for the task's scratch.
bool run_range(const Task& task, int64_t begin, int64_t end) {
  std::byte* scratch = nullptr;
  if (task.scratch > 0) {
    scratch = thread_scratch(task.scratch);
    if (scratch == nullptr) return false;
  }
  reserve_stack();
  task.kernel(task.first + begin, task.first + end, task.buffers, task.sizes, scratch);
  return true;
}

// Leaves asynchronous signals to the program's own threads, whose system calls and handlers expect
// them. Faults stay unblocked: they belong to the thread that made them.
void block_signals() {
#if !defined(_WIN32)
  sigset_t signals;
  sigfillset(&signals);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&signals, fault);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
#endif
}

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Where a chunk begins: their sizes differ by one index at most.
int64_t chunk_begin(int64_t range, int64_t chunks, int64_t number) {
  return range / chunks * number + std::min(range % chunks, number);
}

}  // namespace

// ---- Crew ---------------------------------------------------------------------------------------

void Pool::Crew::resize(int workers) {
  if (static_cast<int>(workers_.size()) > workers) {
    quit_.store(true, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    wake_all(epoch_);
    for (const auto& worker : workers_) worker->thread.join();
    workers_.clear();
    quit_.store(false, std::memory_order_relaxed);
  }
  while (static_cast<int>(workers_.size()) < workers) {
    const int number = static_cast<int>(workers_.size()) + 1;
    auto worker = std::make_unique<Worker>();
    workers_.reserve(workers_.size() + 1);  // a thread that has started is surely kept
    worker->thread = std::thread([this, self = worker.get(), number] { work(*self, number); });
    workers_.push_back(std::move(worker));
  }
}

bool Pool::Crew::run(const Task& task, uint32_t chunks) {
  publish(task, chunks);
  drain(0);
  wait_for_chunks(chunks);
  return !out_of_memory_.load(std::memory_order_relaxed);
}

void Pool::Crew::publish(const Task& task, uint32_t chunks) {
  task_ = &task;
  chunks_ = chunks;
  done_.store(0, std::memory_order_relaxed);
  out_of_memory_.store(false, std::memory_order_relaxed);
  caller_cpu_.store(current_cpu(), std::memory_order_relaxed);
  const size_t parts = std::min({workers_.size() + 1, size_t{chunks}, kMostParts});
  part_count_.store(parts, std::memory_order_relaxed);
  uint32_t begin = 0;
  for (size_t i = 0; i < parts; ++i) {
    Part& part = parts_[i];
    part.end = static_cast<uint32_t>((i + 1) * chunks / parts);
    const uint64_t generation = (part.ticket.load(std::memory_order_relaxed) >> kChunkBits) + 1;
    part.ticket.store(generation << kChunkBits | (part.end - begin), std::memory_order_release);
    begin = part.end;
  }
  // Sequentially consistent against sleep_until_new: either the worker sees the new epoch, or this
  // sees the sleeper.
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) wake(epoch_, static_cast<int>(chunks) - 1);
}

// The part of a thread, and then the others'.
void Pool::Crew::drain(int number) {
  const size_t parts = part_count_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < parts; ++i) drain_part((static_cast<size_t>(number) + i) % parts);
}

void Pool::Crew::drain_part(size_t number) {
  Part& part = parts_[number];
  uint64_t ticket = part.ticket.load(std::memory_order_acquire);
  while ((ticket & kChunkMask) != 0) {
    if (!part.ticket.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {
      continue;
    }
    // A chunk is claimed: the job cannot end, nor the task die, before it is counted below.
    const Task& task = *task_;
    const uint32_t chunks = chunks_;
    const int64_t claimed = part.end - static_cast<int64_t>(ticket & kChunkMask);
    const int64_t begin = chunk_begin(task.range, chunks, claimed);
    const int64_t end = chunk_begin(task.range, chunks, claimed + 1);
    const uint32_t traced = task.traced;
    const int64_t began = traced != 0 ? now_ns() : 0;
    if (!run_range(task, begin, end)) out_of_memory_.store(true, std::memory_order_relaxed);
    if (traced != 0) {
      Trace::instance().record({began, now_ns(), traced, TraceKind::kChunk, begin, end});
    }
    // Sequentially consistent against wait_for_chunks, as in publish.
    const bool last = done_.fetch_add(1, std::memory_order_seq_cst) + 1 == chunks;
    if (last && caller_sleeps_.load(std::memory_order_seq_cst)) wake_all(done_);
    ticket = part.ticket.load(std::memory_order_acquire);
  }
}

void Pool::Crew::wait_for_chunks(uint32_t chunks) {
  for (int spin = 0; spin < kCallerSpins; ++spin) {
    if (done_.load(std::memory_order_acquire) == chunks) return;
    spin_pause();
  }
  caller_sleeps_.store(true, std::memory_order_seq_cst);
  int64_t nap_ns = kFirstNapNs;
  uint32_t done;
  while ((done = done_.load(std::memory_order_seq_cst)) != chunks) {
    lend_cpu();
    wait_while_equal(done_, done, nap_ns);
    nap_ns *= 2;
  }
  caller_sleeps_.store(false, std::memory_order_relaxed);
  take_cpu_back();
}

// Moves the workers that the system has put aside over a chunk to the CPU that the caller is about
// to leave; they would else wait some milliseconds, a time slice of what runs on theirs. They are
// known by their CPU time, which stands still.
void Pool::Crew::lend_cpu() {
  const int64_t callers_ns = cpu_time_ns();
  if (callers_ns < 0) return;
  for (const auto& worker : workers_) {
    if (worker->drains.load(std::memory_order_relaxed)) {
      worker->run_ns = cpu_time_ns(worker->thread.native_handle());
    }
  }
  for (int spin = 0; spin < kJudgeSpins; ++spin) spin_pause();
  // A clock that stands still for the caller too is too coarse to judge by.
  if (cpu_time_ns() == callers_ns) return;
  const int cpu = current_cpu();
  caller_cpu_.store(cpu, std::memory_order_relaxed);
  for (const auto& worker : workers_) {
    if (!worker->drains.load(std::memory_order_relaxed)) continue;
    const ThreadHandle thread = worker->thread.native_handle();
    const int64_t run_ns = cpu_time_ns(thread);
    if (run_ns < 0 || run_ns != worker->run_ns) continue;
    if (worker->allowed.move(thread, cpu)) worker->moved = true;
  }
}

// A worker that has ended its chunk on the caller's CPU wakes the caller, which the system often
// runs at once. The worker would wait there for a time slice and then take one from the caller, so
// the caller sends it away, to wherever it may go.
void Pool::Crew::take_cpu_back() {
  const int cpu = current_cpu();
  for (const auto& worker : workers_) {
    if (!worker->moved) continue;
    worker->moved = false;
    worker->allowed.avoid(worker->thread.native_handle(), cpu);
  }
}

void Pool::Crew::work(Worker& self, int number) {
  block_signals();
  Trace::name_worker(number);
  uint32_t seen = epoch_.load(std::memory_order_acquire);
  while (!quit_.load(std::memory_order_relaxed)) {
    make_way(self);
    self.drains.store(true, std::memory_order_relaxed);
    drain(number);
    self.drains.store(false, std::memory_order_relaxed);
    make_way(self);
    while (!sleep_until_new(seen)) {
    }
    seen = epoch_.load(std::memory_order_acquire);
  }
}

// A worker that finds itself on the caller's CPU keeps the caller from running, for milliseconds if
// it spins: the system often wakes it there, and moves neither in less time than a launch takes.
void Pool::Crew::make_way(const Worker& self) {
  const int callers = caller_cpu_.load(std::memory_order_relaxed);
  if (current_cpu() == callers) self.allowed.avoid(current_thread(), callers);
}

// True when the epoch is no longer `seen`; else the worker has slept, or tried to.
bool Pool::Crew::sleep_until_new(uint32_t seen) {
  for (int spin = 0; spin < kWorkerSpins; ++spin) {
    if (epoch_.load(std::memory_order_acquire) != seen) return true;
    spin_pause();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  wait_while_equal(epoch_, seen);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

// ---- Pool ---------------------------------------------------------------------------------------

Pool& Pool::instance() {
  static Pool* pool = new Pool;
  return *pool;
}

int Pool::threads() {
  int count = threads_.load(std::memory_order_relaxed);
  if (count != 0) return count;
  const int wanted = default_threads();
  // A set_threads in between wins.
  return threads_.compare_exchange_strong(count, wanted, std::memory_order_relaxed) ? wanted
                                                                                    : count;
}

void Pool::set_threads(int64_t count) {
  if (count < 1 || count > kMaxThreads) {
    throw Error("set_threads", std::to_string(count),
                "a number of threads in 1.." + std::to_string(kMaxThreads));
  }
  // Workers start, and leave, at the next launch that wants another number of them.
  while (!crew_->try_acquire()) std::this_thread::yield();
  threads_.store(static_cast<int>(count), std::memory_order_relaxed);
  crew_->release();
}

void Pool::run(const Task& task) {
  if (task.range <= 0) return;
  const int count = threads();
  const int64_t least = std::max(task.grain, ceil_div(task.range, kChunksPerThread * count));
  int64_t chunks = ceil_div(task.range, least);
  // As many for each thread, and equal ones (chunk_begin): so all of them end together.
  if (chunks > count) chunks -= chunks % count;
  bool fits = true;
  if (count == 1 || chunks < 2 || !crew_->try_acquire()) {
    fits = run_range(task, 0, task.range);
  } else {
    try {
      crew_->resize(count - 1);
    } catch (const std::system_error& error) {
      crew_->release();
      fail_at_launch({"thread pool", std::string("no new thread (") + error.what() + ")",
                      std::to_string(count - 1) + " worker threads",
                      "lower RLX_NUM_THREADS, or raise the system's limit on threads"});
    }
    fits = crew_->run(task, static_cast<uint32_t>(chunks));
    crew_->release();
  }
  if (!fits) {
    fail_at_launch({"thread pool", "no memory", std::to_string(task.scratch) + " bytes of scratch"});
  }
}

void Pool::reset_after_fork() noexcept { crew_ = new Crew; }

}  // namespace rlx
