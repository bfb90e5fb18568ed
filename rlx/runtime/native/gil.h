// Giving up the GIL around native work.
#pragma once

#include <Python.h>

#include <chrono>
#include <thread>

namespace rlx {

// The GIL is free while this lives. Unlike nanobind's own, this survives the end of the
// interpreter: a daemon thread that wants the GIL back then is ended by pthread_exit, whose
// unwinding must not meet a destructor or a noexcept function of C++, or the process aborts. Such a
// thread sleeps instead until the process is gone, which is what newer Pythons make it do.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() { take(); }

  // Runs `body`, which throws nothing, with the GIL.
  template <typename Body>
  void held(Body body) {
    take();
    body();
    state_ = PyEval_SaveThread();
  }

  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  void take() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }

  PyThreadState* state_;
};

}  // namespace rlx
