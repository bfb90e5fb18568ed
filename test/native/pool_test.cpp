#include "pool.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "affinity.h"
#include "check.h"
#include "thread_count.h"

namespace rlx {
namespace {

// Plain counters on purpose: a sanitizer sees any index that two threads compute at once, and any
// use of the memory after its launch has ended.
void count_indices(int64_t begin, int64_t end, void* const* buffers, const int64_t* sizes, void*) {
  auto* counts = static_cast<int64_t*>(buffers[0]);
  for (int64_t i = begin; i < end; ++i) counts[i] += sizes[0];
}

void check_one_launch(int64_t range, int64_t grain) {
  std::vector<int64_t> counts(static_cast<size_t>(range), 0);
  void* buffers[] = {counts.data()};
  const int64_t sizes[] = {range + 1};
  Pool::instance().run({count_indices, range, grain, 0, buffers, sizes});
  for (int64_t count : counts) CHECK(count == range + 1);
}

TEST(every_index_runs_once_whatever_the_threads_and_the_grain) {
  for (int threads : {1, 2, 3, 8}) {
    Pool::instance().set_threads(threads);
    CHECK(Pool::instance().threads() == threads);
    for (int64_t range : {0, 1, 2, 7, 64, 1000}) {
      for (int64_t grain : {int64_t{1}, int64_t{5}, int64_t{100000}, INT64_MAX}) {
        check_one_launch(range, grain);
      }
    }
  }
}

// Each task lives on its caller's stack, so a late worker that touched an ended one would be seen.
TEST(many_callers_share_the_pool) {
  Pool::instance().set_threads(4);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([caller] {
      for (int i = 0; i < 3000; ++i) check_one_launch(2 + (i * 7 + caller) % 40, 1);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(the_number_of_threads_changes_under_way) {
  std::atomic<bool> done{false};
  std::thread caller([&done] {
    while (!done.load()) check_one_launch(33, 1);
  });
  for (int i = 0; i < 60; ++i) Pool::instance().set_threads(1 + i % 5);
  done.store(true);
  caller.join();
}

// Longer than any spin, so that workers sleep and must be woken.
TEST(sleeping_workers_wake) {
  Pool::instance().set_threads(4);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    check_one_launch(16, 1);
  }
}

struct Begun {
  std::atomic<int> order{0}, at[16];
};

// The first chunk lasts until that in the middle has begun, or in vain for seconds.
void note_order(int64_t begin, int64_t end, void* const* buffers, const int64_t*, void*) {
  auto* begun = static_cast<Begun*>(buffers[0]);
  for (int64_t i = begin; i < end; ++i) begun->at[i].store(++begun->order);
  for (int nap = 0; begin == 0 && nap < 5000 && begun->at[8].load() == 0; ++nap) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(each_thread_begins_with_neighbours_of_its_own) {
  Pool::instance().set_threads(2);
  Begun begun{};
  void* buffers[] = {&begun};
  Pool::instance().run({note_order, 16, 1, 0, buffers, nullptr});
  CHECK(begun.order == 16);
  for (int i = 1; i < 8; ++i) {
    CHECK(begun.at[i] > begun.at[8]);
    CHECK(begun.at[8 + i] > begun.at[8]);
  }
}

struct Seats {
  std::thread::id caller;
  std::chrono::milliseconds works;  // of the worker, before it stands still
  bool steps_back;                  // at the worker's end every other thread goes before it
  std::atomic<int> workers_first{-1}, workers_last{-2}, callers{-1};
  ThreadHandle worker{};
};

void step_back() {
#if defined(__linux__)
  const sched_param none{};
  CHECK(sched_setscheduler(0, SCHED_IDLE, &none) == 0);
#endif
}

// Of two chunks, the caller's ends a while after a worker has begun the other. That one works until
// the caller waits for it, then stands still, as if another process had its CPU, until it is where
// the caller was; in vain for seconds at most.
void stand_still(int64_t, int64_t, void* const* buffers, const int64_t*, void*) {
  auto* seats = static_cast<Seats*>(buffers[0]);
  if (std::this_thread::get_id() == seats->caller) {
    while (seats->workers_first.load() < 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    seats->callers.store(current_cpu());
  } else {
    seats->worker = current_thread();
    seats->workers_first.store(current_cpu());
    if (seats->works.count() > 0) {
      while (seats->callers.load() < 0) {
      }
      const auto end = std::chrono::steady_clock::now() + seats->works;
      while (std::chrono::steady_clock::now() < end) {
      }
    }
    for (int nap = 0; nap < 50 && seats->workers_last.load() != seats->callers.load(); ++nap) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      seats->workers_last.store(current_cpu());
    }
    if (seats->steps_back) step_back();
  }
}

bool may_use([[maybe_unused]] ThreadHandle thread, [[maybe_unused]] int cpu) {
#if defined(__linux__)
  cpu_set_t set;
  CHECK(pthread_getaffinity_np(thread, sizeof set, &set) == 0);
  return CPU_ISSET(cpu, &set);
#else
  return false;
#endif
}

// Those of two threads, which may go anywhere.
void start_workers_anew() {
  for (int threads : {3, 2}) {
    Pool::instance().set_threads(threads);
    check_one_launch(2, 1);
  }
}

void check_lending(std::chrono::milliseconds works, bool steps_back, int launches) {
  std::thread([=] {
    const Affinity allowed;
    const int here = current_cpu();
    start_workers_anew();
    if (allowed.count() < 2 || cpu_time_ns() < 0 || !allowed.move(current_thread(), here)) return;
    for (int i = 0; i < launches; ++i) {
      Seats seats;
      seats.caller = std::this_thread::get_id();
      seats.works = works;
      seats.steps_back = steps_back;
      void* buffers[] = {&seats};
      Pool::instance().run({stand_still, 2, 1, 0, buffers, nullptr});
      CHECK(seats.callers == here);
      CHECK(seats.workers_last == here);
      CHECK(!may_use(seats.worker, here));
      // The first time the system may have put it anywhere.
      CHECK(i == 0 || seats.workers_first != here);
    }
  }).join();
}

TEST(a_worker_that_was_put_aside_gets_the_callers_cpu_and_leaves_it) {
  check_lending(std::chrono::milliseconds(0), false, 3);
}

TEST(a_worker_that_is_put_aside_while_its_caller_sleeps_gets_its_cpu_too) {
  check_lending(std::chrono::milliseconds(30), false, 3);
}

TEST(a_caller_that_wakes_sends_the_worker_away) {
  check_lending(std::chrono::milliseconds(0), true, 1);
  start_workers_anew();  // as the priority cannot be raised again
}

void use_scratch(int64_t begin, int64_t end, void* const* buffers, const int64_t* sizes,
                 void* scratch) {
  auto* ok = static_cast<uint8_t*>(buffers[0]);
  auto* words = static_cast<int64_t*>(scratch);
  const int64_t count = sizes[0];
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t k = 0; k < count; ++k) words[k] = i;
    bool same = reinterpret_cast<uintptr_t>(scratch) % kCacheLine == 0;
    for (int64_t k = 0; k < count; ++k) same = same && words[k] == i;
    ok[i] = same ? 1 : 0;
  }
}

TEST(scratch_is_private_aligned_and_grows) {
  Pool::instance().set_threads(4);
  for (int64_t words : {8, 100, 5000, 16}) {
    std::vector<uint8_t> ok(64, 0);
    void* buffers[] = {ok.data()};
    Pool::instance().run(
        {use_scratch, 64, 1, static_cast<size_t>(words) * sizeof(int64_t), buffers, &words});
    for (uint8_t fine : ok) CHECK(fine == 1);
  }
}

TEST(a_bad_number_of_threads_is_refused) {
  CHECK_REFUSED("set_threads", Pool::instance().set_threads(0));
  CHECK_REFUSED("set_threads", Pool::instance().set_threads(kMaxThreads + 1));
}

}  // namespace
}  // namespace rlx
