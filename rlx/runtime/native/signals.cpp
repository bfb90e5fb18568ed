#include "signals.h"

#include <nanobind/nanobind.h>

#include <algorithm>

#include "fork.h"

namespace nb = nanobind;

namespace rlx {

namespace {

unsigned long main_thread = 0;

// In a forked child, the thread that forked is the main one.
class MainThread final : public ForkAware {
 public:
  void reset_after_fork() noexcept override { main_thread = PyThread_get_thread_ident(); }
};

}  // namespace

void find_main_thread() {
  static MainThread* const follower = new MainThread;
  (void)follower;
  const nb::object thread = nb::module_::import_("threading").attr("main_thread")();
  main_thread = nb::cast<unsigned long>(thread.attr("ident"));
}

bool takes_signals() { return PyThread_get_thread_ident() == main_thread; }

bool Signals::in_place(size_t output) const {
  return std::find(inputs_, inputs_ + input_count_, outputs_[output]) != inputs_ + input_count_;
}

bool Signals::end_now() {
  bool ends = false;
  gil_->held([&] {
    if (PyErr_CheckSignals() == 0) return;
    ends = type_ != nullptr;  // asked for a second time
    Py_CLEAR(type_);
    Py_CLEAR(value_);
    Py_CLEAR(trace_);
    PyErr_Fetch(&type_, &value_, &trace_);
    bool whole = true;
    for (size_t i = 0; i < output_count_; ++i) whole = whole && !in_place(i);
    ends = ends || whole;
  });
  return ends;
}

bool Signals::raise() {
  if (type_ == nullptr) return false;
  PyErr_Restore(type_, value_, trace_);
  type_ = value_ = trace_ = nullptr;
  return true;
}

}  // namespace rlx
