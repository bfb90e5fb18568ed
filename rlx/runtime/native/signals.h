// Signals of Python in the middle of a call.
#pragma once

#include <Python.h>

#include <cstddef>

#include "gil.h"
#include "watch.h"

namespace rlx {

// Called once, with the GIL.
void find_main_thread();

// Whether Python runs the handlers of signals on this thread.
bool takes_signals();

// Ends a call when the handler of a signal raises, as that of Ctrl-C does. A call that writes over
// one of its inputs is let end once: else what it has begun to write would be of no use.
class Signals final : public Watch {
 public:
  // The pointers are those of the call's inputs and outputs.
  Signals(void* const* inputs, size_t input_count, void* const* outputs, size_t output_count)
      : inputs_(inputs),
        outputs_(outputs),
        input_count_(input_count),
        output_count_(output_count) {}

  // What has released the GIL for the call.
  void use(GilReleased* gil) { gil_ = gil; }

  // Whether the output lies in the memory of an input.
  bool in_place(size_t output) const;

  // With the GIL: whether a handler has raised; then that is Python's error now.
  bool raise();

 private:
  bool end_now() override;

  void* const* const inputs_;
  void* const* const outputs_;
  const size_t input_count_, output_count_;
  GilReleased* gil_ = nullptr;
  PyObject *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;  // of what was raised
};

}  // namespace rlx
