// A thread that carries out collectives beside the launches of a call.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>

#include "fork.h"

namespace rlx {

// Runs what it is given, in order. It is of one calling thread, which alone uses it.
class Beside final : public ForkAware {
 public:
  // What is run: a function and its argument, which outlives the run.
  struct Task {
    void (*function)(void* argument);
    void* argument;
  };

  // That of the calling thread.
  static Beside& of_this_thread();

  ~Beside() override;

  void give(Task task);
  // Waits until all has run, for 10 ms at most; whether it has.
  bool wait();

  void reset_after_fork() noexcept override;

 private:
  Beside();
  void work();

  // Of a parent's, a child keeps what was there, and never uses it again.
  struct State {
    std::mutex mutex;
    std::condition_variable given, done;
    std::deque<Task> tasks;  // the first is at work
    bool ends = false;
    std::thread thread;
  };
  State* state_;
};

}  // namespace rlx
