#include "device_meetings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checksum.h"
#include "executor.h"
#include "gil.h"
#include "held_bytes.h"
#include "signals.h"
#include "step_reader.h"
#include "words.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rlx {

namespace {

// Ends a wait when `asked`, a function of Python, raises: it lets handlers of signals have their turn.
class Asked final : public Watch {
 public:
  Asked(nb::handle asked, GilReleased& gil) : asked_(asked), gil_(gil) {}
  ~Asked() override { Py_XDECREF(error_); }

  // With the GIL.
  void raise() {
    if (error_ == nullptr) return;
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error_)), error_);
    throw nb::python_error();
  }

 private:
  bool end_now() override {
    gil_.held([&] {
      PyObject* result = PyObject_CallNoArgs(asked_.ptr());
      Py_XDECREF(result);
      if (result != nullptr) return;
      PyObject *type, *trace;
      PyErr_Fetch(&type, &error_, &trace);
      PyErr_NormalizeException(&type, &error_, &trace);
      if (trace != nullptr) PyException_SetTraceback(error_, trace);
      Py_XDECREF(type);
      Py_XDECREF(trace);
    });
    return error_ != nullptr;
  }

  nb::handle asked_;
  GilReleased& gil_;
  PyObject* error_ = nullptr;
};

// Runs `work` with a watch, or with none on a thread that gets no signals, and without the GIL.
template <typename Work>
void waiting(nb::handle asked, Work work) {
  std::unique_ptr<Asked> watch;
  try {
    GilReleased released;
    if (takes_signals()) watch = std::make_unique<Asked>(asked, released);
    work(watch.get());
  } catch (...) {
    if (watch != nullptr) watch->raise();
    throw;
  }
  if (watch != nullptr) watch->raise();
}

class DeviceMeetings {
 public:
  DeviceMeetings(nb::handle main, size_t kernels) : steps_(read(main, kernels)) {
    collectives_ = collectives(steps_);
    digest_ = collective_digest(steps_);
  }

  void use(std::string engine, std::vector<std::string> libraries, std::string hint,
           uintptr_t stream, uintptr_t query, uintptr_t copy_in, uintptr_t copy_out) {
    gpu_ = {std::move(engine), std::move(libraries), std::move(hint),
            reinterpret_cast<void*>(stream), reinterpret_cast<decltype(Gpu::query)>(query),
            reinterpret_cast<decltype(Gpu::copy_in)>(copy_in),
            reinterpret_cast<decltype(Gpu::copy_out)>(copy_out)};
    // Ranks on GPUs meet no others.
    digest_ ^= checksum(gpu_->engine.data(), gpu_->engine.size());
  }

  void begin(nb::handle asked) {
    waiting(asked, [&](Watch* watch) {
      auto made = std::make_unique<Meetings>(collectives_, digest_, watch);
      if (gpu_) made->move_to(*gpu_, watch);
      now_ = std::move(made);
    });
  }

  void end() { now_.reset(); }

  std::string run(size_t number, uintptr_t source, uintptr_t target, nb::handle asked) const {
    std::string why;
    waiting(asked, [&](Watch* watch) {
      now_->run(*collectives_.at(number), reinterpret_cast<const void*>(source),
                reinterpret_cast<void*>(target), watch, why);
    });
    return why;
  }

 private:
  static Steps read(nb::handle main, size_t kernels) {
    const HeldBytes bytes(main);
    Words words({"main", static_cast<const std::byte*>(bytes.data()), bytes.size()});
    return StepReader(words, kernels).main();
  }

  Steps steps_;
  std::vector<const Collective*> collectives_;
  uint64_t digest_ = 0;
  std::optional<Gpu> gpu_;
  std::unique_ptr<Meetings> now_;  // of the run that has its turn
};

}  // namespace

void bind_device_meetings(nb::module_& module) {
  nb::class_<DeviceMeetings>(module, "DeviceMeetings")
      .def(nb::init<nb::handle, size_t>(), "main"_a, "kernels"_a)
      .def("use", &DeviceMeetings::use, "engine"_a, "libraries"_a, "hint"_a, "stream"_a, "query"_a,
           "copy_in"_a, "copy_out"_a)
      .def("begin", &DeviceMeetings::begin, "asked"_a)
      .def("end", &DeviceMeetings::end)
      .def("run", &DeviceMeetings::run, "number"_a, "source"_a, "target"_a, "asked"_a);
}

}  // namespace rlx
