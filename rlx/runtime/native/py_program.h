// A program as Python holds it: buffers checked and held for the time of a call, results as arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "buffers.h"
#include "error.h"
#include "gil.h"
#include "program.h"
#include "py_objects.h"
#include "result_array.h"
#include "signals.h"
#include "weights.h"

namespace rlx {

namespace nb = nanobind;

// Names inside a damaged object need not be UTF-8.
inline nb::str to_str(const std::string& text) {
  PyObject* str =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
  if (str == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(str);
}

// bfloat16 and 8-bit floats are no types of numpy's own: their bits come back as integers.
inline const char* numpy_name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].numpy; }

// What is used of numpy: looked up once, for the life of the process.
struct NumPy {
  nb::object empty, ndarray;
  std::vector<nb::object> dtypes;  // by number

  // With the GIL, which another thread may get while this one looks it up.
  static const NumPy& get() {
    static const NumPy* found = nullptr;
    if (found == nullptr) {
      const auto* made = new NumPy;
      if (found == nullptr) found = made;
    }
    return *found;
  }

 private:
  NumPy() {
    nb::module_ numpy = nb::module_::import_("numpy");
    empty = numpy.attr("empty");
    ndarray = numpy.attr("ndarray");
    for (size_t i = 0; i < std::size(kDTypes); ++i) {
      dtypes.push_back(numpy.attr("dtype")(numpy_name(static_cast<DType>(i))));
    }
  }
};

// What numpy needs to make a new array for an output.
struct OutputArray {
  nb::object shape, dtype;
  size_t bytes;
};

inline nb::tuple to_tuple(const std::vector<int64_t>& values) {
  nb::list list;
  for (int64_t value : values) list.append(value);
  return nb::tuple(list);
}

inline nb::tuple to_tuple(const std::vector<Signature>& signatures) {
  nb::list list;
  for (const Signature& signature : signatures) {
    list.append(
        nb::make_tuple(signature.name, dtype_name(signature.dtype), to_tuple(signature.shape)));
  }
  return nb::tuple(list);
}

// A program with what its calls from Python need besides.
class PyProgram {
 public:
  PyProgram(std::shared_ptr<Weights> weights, Schedule schedule,
            Kernels kernels = Kernels::kAddresses)
      : numpy_(NumPy::get()), program_(std::move(weights), std::move(schedule), kernels) {
    for (const Signature& input : program_.schedule().inputs) names_.push_back(to_str(input.name));
    for (const Signature& output : program_.schedule().outputs) {
      arrays_.push_back({to_tuple(output.shape), numpy_.dtypes[static_cast<size_t>(output.dtype)],
                         static_cast<size_t>(output.bytes())});
    }
  }

  const Schedule& schedule() const { return program_.schedule(); }
  Program& program() { return program_; }

  nb::tuple run_slots(const nb::args& inputs) {
    Call call(*this);
    call.take_inputs(inputs.ptr());
    nb::tuple results = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(arrays_.size())));
    if (!results.is_valid()) throw nb::python_error();
    for (size_t i = 0; i < arrays_.size(); ++i) {
      PyTuple_SetItem(results.ptr(), static_cast<Py_ssize_t>(i), call.new_output(i));
    }
    call.run();
    return results;
  }

  // None, and nothing is run, for anything but a dict with an array as declared for each input.
  nb::object run_named(nb::handle inputs) {
    Call call(*this);
    if (!call.take_named(inputs.ptr())) return nb::none();
    nb::list results = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(arrays_.size())));
    if (!results.is_valid()) throw nb::python_error();
    for (size_t i = 0; i < arrays_.size(); ++i) {
      PyList_SetItem(results.ptr(), static_cast<Py_ssize_t>(i), call.new_output(i));
    }
    call.run();
    return results;
  }

  // False, and nothing is run, for other inputs than run_named's, and for anything but arrays as
  // declared for the outputs, which share no memory with the inputs or one another.
  bool run_named_into(nb::handle inputs, nb::handle outputs) {
    Call call(*this);
    if (!call.take_named(inputs.ptr()) || !call.take_apart(outputs.ptr())) return false;
    call.run();
    return true;
  }

  void run_into(nb::handle inputs, nb::handle outputs) {
    Call call(*this);
    nb::object in = fast_sequence(inputs, "inputs");
    nb::object out = fast_sequence(outputs, "outputs");
    call.take_inputs(in.ptr());
    call.take_all(out.ptr(), "outputs", schedule().outputs, Role::kOutput);
    call.run();
  }

  void set_profiling(bool on) { program_.set_profiling(on); }
  uint32_t first_launch() const { return program_.launches().first; }

  nb::list launch_times() const {
    nb::list times;
    const LaunchTime* time = program_.launch_times();
    for (uint32_t i = 0; i < program_.launches().count; ++i, ++time) {
      times.append(nb::make_tuple(time->nanoseconds.load(std::memory_order_relaxed),
                                  time->calls.load(std::memory_order_relaxed)));
    }
    return times;
  }

 private:
  // The buffers of a call, kept for the next one so that a call allocates nothing.
  struct Slots {
    HeldBuffers held;
    std::vector<void*> pointers;  // inputs, then outputs
  };

  class Call {
   public:
    explicit Call(PyProgram& owner) : owner_(owner), slots_(owner.slots_.take()) {
      if (slots_ != nullptr) return;
      const size_t count = owner.schedule().inputs.size() + owner.schedule().outputs.size();
      slots_ = new Slots;
      slots_->held.reserve(count);
      slots_->pointers.reserve(count);
    }

    ~Call() {
      slots_->held.release();
      slots_->pointers.clear();
      owner_.slots_.give(slots_);
    }

    void take(PyObject* object, const Signature& signature, Role role) {
      slots_->pointers.push_back(slots_->held.take(object, signature, role));
    }

    // `objects` is a tuple or list.
    void take_all(PyObject* objects, const char* what, const std::vector<Signature>& signatures,
                  Role role) {
      const Py_ssize_t count = item_count(objects);
      if (static_cast<size_t>(count) != signatures.size()) refuse_count(what, count, signatures);
      for (Py_ssize_t i = 0; i < count; ++i) {
        take(item_at(objects, i), signatures[static_cast<size_t>(i)], role);
      }
    }

    void take_inputs(PyObject* objects) {
      take_all(objects, "inputs", owner_.schedule().inputs, Role::kInput);
    }

    // A new reference to a new array for an output.
    PyObject* new_output(size_t index) {
      const OutputArray& made = owner_.arrays_[index];
      PyObject* arguments[] = {made.shape.ptr(), made.dtype.ptr(), nullptr};
      PyObject* array = nullptr;
      if (made.bytes < kLeastKept) {
        array = PyObject_Vectorcall(owner_.numpy_.empty.ptr(), arguments, 2, nullptr);
      } else {
        const nb::object memory = result_memory(made.bytes);
        arguments[2] = memory.ptr();
        array = PyObject_Vectorcall(owner_.numpy_.ndarray.ptr(), arguments, 3, nullptr);
      }
      if (array == nullptr) throw nb::python_error();
      take(array, owner_.schedule().outputs[index], Role::kOutput);
      return array;
    }

    bool take_named(PyObject* named) {
      const std::vector<Signature>& signatures = owner_.schedule().inputs;
      if (PyDict_CheckExact(named) == 0 ||
          static_cast<size_t>(PyDict_Size(named)) != signatures.size()) {
        return false;
      }
      for (size_t i = 0; i < signatures.size(); ++i) {
        PyObject* array = PyDict_GetItemWithError(named, owner_.names_[i].ptr());
        if (array == nullptr) {
          PyErr_Clear();
          return false;
        }
        if (!take_array(array, signatures[i], Role::kInput)) return false;
      }
      return true;
    }

    bool take_apart(PyObject* outputs) {
      const std::vector<Signature>& signatures = owner_.schedule().outputs;
      if ((PyList_CheckExact(outputs) == 0 && PyTuple_CheckExact(outputs) == 0) ||
          static_cast<size_t>(item_count(outputs)) != signatures.size()) {
        return false;
      }
      for (size_t i = 0; i < signatures.size(); ++i) {
        PyObject* array = item_at(outputs, static_cast<Py_ssize_t>(i));
        if (!take_array(array, signatures[i], Role::kOutput)) return false;
        if (!slots_->held.last_is_apart()) return false;
      }
      return true;
    }

    void run() {
      const size_t count = owner_.schedule().inputs.size();
      void* const* inputs = slots_->pointers.data();
      void* const* outputs = inputs + count;
      if (!takes_signals()) {
        GilReleased released;
        owner_.program_.run(inputs, outputs);
        return;
      }
      Signals signals(inputs, count, outputs, owner_.schedule().outputs.size());
      try {
        GilReleased released;
        signals.use(&released);
        owner_.program_.run(inputs, outputs, &signals);
      } catch (const Interrupted&) {
        spoil(signals, outputs);
      } catch (...) {
        if (!signals.raise()) throw;
        throw nb::python_error();
      }
      if (signals.raise()) throw nb::python_error();
    }

   private:
    // Nobody is to take what is half old and half new for a result: all ones are nan as floats, and
    // -1 as integers.
    void spoil(const Signals& signals, void* const* outputs) const {
      const std::vector<Signature>& signatures = owner_.schedule().outputs;
      for (size_t i = 0; i < signatures.size(); ++i) {
        if (!signals.in_place(i)) continue;
        const int value = signatures[i].dtype == DType::kBool ? 1 : 0xFF;
        std::memset(outputs[i], value, static_cast<size_t>(signatures[i].bytes()));
      }
    }

    // False unless it is an array of the signature, and of no subclass.
    bool take_array(PyObject* object, const Signature& signature, Role role) {
      if (reinterpret_cast<PyObject*>(Py_TYPE(object)) != owner_.numpy_.ndarray.ptr()) return false;
      void* data = nullptr;
      if (!slots_->held.take_fitting(object, signature, role, &data)) return false;
      slots_->pointers.push_back(data);
      return true;
    }

    PyProgram& owner_;
    Slots* slots_;
  };

  [[noreturn]] static void refuse_count(const char* what, Py_ssize_t count,
                                        const std::vector<Signature>& signatures) {
    std::string names;
    for (const Signature& signature : signatures) {
      names += (names.empty() ? " (" : ", ") + signature.name;
    }
    throw Error(what, std::to_string(count) + " buffers",
                std::to_string(signatures.size()) + names + (names.empty() ? "" : ")"));
  }

  static nb::object fast_sequence(nb::handle value, const char* what) {
    PyObject* fast = PySequence_Fast(value.ptr(), "");
    if (fast == nullptr) {
      PyErr_Clear();
      throw Error(what, type_name(value.ptr()), "a sequence of buffers");
    }
    return nb::steal(fast);
  }

  const NumPy& numpy_;
  Program program_;
  FreeList<Slots> slots_;
  std::vector<nb::str> names_;     // of the inputs
  std::vector<OutputArray> arrays_;
};

}  // namespace rlx
