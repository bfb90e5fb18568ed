// The Python module rlx.runtime._native; rlx/runtime/_native.pyi documents it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>

#include "artifact.h"
#include "buffers.h"
#include "error.h"
#include "function_bindings.h"
#include "gil.h"
#include "held_bytes.h"
#include "parse.h"
#include "program.h"
#include "weights.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rlx {

namespace {

// Owned by the module, which lives as long as the interpreter.
PyObject* error_class = nullptr;
PyObject* fault_class = nullptr;

PyObject* new_exception(nb::module_& module, const char* name, const char* doc, PyObject* base) {
  const std::string full = "rlx.runtime._native." + std::string(name);
  PyObject* type = PyErr_NewExceptionWithDoc(full.c_str(), doc, base, nullptr);
  if (type == nullptr) throw nb::python_error();
  module.attr(name) = nb::steal(type);
  return type;
}

// Names inside a damaged object need not be UTF-8.
nb::str to_str(const std::string& text) {
  PyObject* str =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
  if (str == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(str);
}

void translate(const std::exception_ptr& failure, void*) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    nb::object instance = nb::borrow(error_class)(to_str(error.what()));
    instance.attr("where") = to_str(error.where);
    instance.attr("found") = to_str(error.found);
    instance.attr("expected") = to_str(error.expected);
    instance.attr("hint") = to_str(error.hint);
    PyErr_SetObject(error_class, instance.ptr());
  } catch (const Fault& fault) {
    nb::object instance = nb::borrow(fault_class)(to_str(fault.what()));
    instance.attr("code") = fault.code;
    instance.attr("site") = fault.site;
    PyErr_SetObject(fault_class, instance.ptr());
  }
}

// What numpy needs to make a new array for an output.
struct OutputArray {
  nb::object shape, dtype;
};

// bfloat16 is no type of numpy's own: its bits come back as uint16.
const char* numpy_name(DType dtype) {
  constexpr const char* kNames[] = {"float16", "uint16", "float32", "float64", "int8",
                                    "int16",   "int32",  "int64",   "uint8",   "uint16",
                                    "uint32",  "uint64", "bool"};
  return kNames[static_cast<size_t>(dtype)];
}

nb::tuple to_tuple(const std::vector<int64_t>& values) {
  nb::list list;
  for (int64_t value : values) list.append(value);
  return nb::tuple(list);
}

nb::tuple to_tuple(const std::vector<Signature>& signatures) {
  nb::list list;
  for (const Signature& signature : signatures) {
    list.append(
        nb::make_tuple(signature.name, dtype_name(signature.dtype), to_tuple(signature.shape)));
  }
  return nb::tuple(list);
}

// Weights as Python holds them.
class PyWeights {
 public:
  explicit PyWeights(Prologue prologue)
      : weights_(std::make_shared<Weights>(std::move(prologue))) {}

  const std::shared_ptr<Weights>& weights() const { return weights_; }
  const std::vector<Signature>& params() const { return weights_->prologue().params; }
  uint32_t first_launch() const { return weights_->launches().first; }

  void set_param(int64_t index, nb::handle value) {
    if (index < 0 || static_cast<size_t>(index) >= params().size()) {
      throw Error("set_param", "index " + std::to_string(index),
                  "one in 0.." + std::to_string(params().size()) + " (excluded)");
    }
    const auto slot = static_cast<size_t>(index);
    HeldParam param = hold_param(value.ptr(), params()[slot]);
    std::shared_ptr<void> old;  // let go only once the GIL is back
    {
      GilReleased released;  // the calls to wait for need the GIL to end
      old = weights_->set_param(slot, param.data, std::move(param.owner));
    }
  }

  void release_when_packed(nb::handle file) {
    Constant mapped = hold_constant("file", file.ptr());
    GilReleased released;
    weights_->release_when_packed(std::move(mapped));
  }

 private:
  std::shared_ptr<Weights> weights_;
};

// A program with what its calls from Python need besides.
class PyProgram {
 public:
  PyProgram(std::shared_ptr<Weights> weights, Schedule schedule)
      : program_(std::move(weights), std::move(schedule)) {
    nb::module_ numpy = nb::module_::import_("numpy");
    empty_ = numpy.attr("empty");
    for (const Signature& output : program_.schedule().outputs) {
      arrays_.push_back({to_tuple(output.shape), numpy.attr("dtype")(numpy_name(output.dtype))});
    }
  }

  const Schedule& schedule() const { return program_.schedule(); }

  nb::tuple run_slots(const nb::args& inputs) {
    Call call(*this);
    call.take_inputs(inputs.ptr());
    nb::tuple results = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(arrays_.size())));
    if (!results.is_valid()) throw nb::python_error();
    for (size_t i = 0; i < arrays_.size(); ++i) {
      PyObject* arguments[] = {arrays_[i].shape.ptr(), arrays_[i].dtype.ptr()};
      PyObject* array = PyObject_Vectorcall(empty_.ptr(), arguments, 2, nullptr);
      if (array == nullptr) throw nb::python_error();
      PyTuple_SET_ITEM(results.ptr(), static_cast<Py_ssize_t>(i), array);
      call.take(array, schedule().outputs[i], Role::kOutput);
    }
    call.run();
    return results;
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
      const Py_ssize_t count = PySequence_Fast_GET_SIZE(objects);
      if (static_cast<size_t>(count) != signatures.size()) refuse_count(what, count, signatures);
      for (Py_ssize_t i = 0; i < count; ++i) {
        take(PySequence_Fast_GET_ITEM(objects, i), signatures[static_cast<size_t>(i)], role);
      }
    }

    void take_inputs(PyObject* objects) {
      take_all(objects, "inputs", owner_.schedule().inputs, Role::kInput);
    }

    void run() {
      GilReleased released;
      void** inputs = slots_->pointers.data();
      owner_.program_.run(inputs, inputs + owner_.schedule().inputs.size());
    }

   private:
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
      throw Error(what, Py_TYPE(value.ptr())->tp_name, "a sequence of buffers");
    }
    return nb::steal(fast);
  }

  Program program_;
  FreeList<Slots> slots_;
  nb::object empty_;  // numpy.empty
  std::vector<OutputArray> arrays_;
};

std::vector<std::shared_ptr<const ElfObject>> loaded(const std::vector<ObjectHandle>& handles) {
  std::vector<std::shared_ptr<const ElfObject>> objects;
  for (const ObjectHandle& handle : handles) objects.push_back(handle.object);
  return objects;
}

std::vector<Constant> hold_constants(nb::handle values) {
  std::vector<Constant> constants;
  for (nb::handle value : values) {
    const std::string where = "constants[" + std::to_string(constants.size()) + "]";
    constants.push_back(hold_constant(where, value.ptr()));
  }
  return constants;
}

void init_weights(PyWeights* self, const std::vector<ObjectHandle>& objects, nb::handle params,
                  nb::handle constants, int64_t packed_bytes, nb::handle prologue,
                  std::vector<uintptr_t> functions) {
  Prologue parsed;
  parsed.objects = loaded(objects);
  parsed.functions = std::move(functions);
  parsed.params = parse_signatures("params", params);
  parsed.constants = hold_constants(constants);
  parsed.packed_bytes = packed_bytes;
  parsed.steps = parse_prologue(prologue);
  new (self) PyWeights(std::move(parsed));
}

void init_program(PyProgram* self, const PyWeights* weights,
                  const std::vector<ObjectHandle>& objects, nb::handle constants, nb::handle inputs,
                  nb::handle outputs, int64_t arena_bytes, nb::handle main,
                  std::vector<uintptr_t> functions) {
  Schedule schedule;
  schedule.objects = loaded(objects);
  schedule.functions = std::move(functions);
  schedule.constants = hold_constants(constants);
  schedule.inputs = parse_signatures("inputs", inputs);
  schedule.outputs = parse_signatures("outputs", outputs);
  schedule.arena_bytes = arena_bytes;
  schedule.main = parse_main(main);
  new (self) PyProgram(
      weights != nullptr ? weights->weights() : std::make_shared<Weights>(Prologue{}),
      std::move(schedule));
}

ObjectHandle load_object(nb::handle data) {
  const HeldBytes bytes(data);
  return {ElfObject::load(bytes.data(), bytes.size())};
}

nb::tuple symbol_names(const ObjectHandle& self) {
  nb::list names;
  for (const auto& [name, address] : self.object->symbols()) names.append(to_str(name));
  return nb::tuple(names);
}

void bind_classes(nb::module_& module) {
  nb::class_<ObjectHandle>(module, "Object", nb::is_weak_referenceable())
      .def(
          "__init__",
          [](ObjectHandle* self, nb::handle data) { new (self) ObjectHandle(load_object(data)); },
          "data"_a)
      .def(
          "symbol",
          [](const ObjectHandle& self, const std::string& name) {
            return reinterpret_cast<uintptr_t>(self.object->symbol(name));
          },
          "name"_a)
      .def("symbols", &symbol_names);

  nb::class_<PyWeights>(module, "Weights")
      .def("__init__", &init_weights, nb::kw_only(), "objects"_a = nb::make_tuple(),
           "params"_a = nb::make_tuple(), "constants"_a = nb::make_tuple(), "packed_bytes"_a = 0,
           "prologue"_a = nb::make_tuple(), "functions"_a = nb::make_tuple())
      .def("set_param", &PyWeights::set_param, "index"_a, "value"_a)
      .def_prop_ro("first_launch", &PyWeights::first_launch)
      .def("release_when_packed", &PyWeights::release_when_packed, "file"_a)
      .def_prop_ro("params", [](const PyWeights& self) { return to_tuple(self.params()); });

  nb::class_<PyProgram>(module, "Program")
      .def("__init__", &init_program, nb::kw_only(), "weights"_a = nb::none(), "objects"_a,
           "constants"_a = nb::make_tuple(), "inputs"_a = nb::make_tuple(),
           "outputs"_a = nb::make_tuple(), "arena_bytes"_a = 0, "main"_a = nb::make_tuple(),
           "functions"_a = nb::make_tuple())
      .def("run_slots", &PyProgram::run_slots)
      .def("run_into", &PyProgram::run_into, "inputs"_a, "outputs"_a)
      .def("set_profiling", &PyProgram::set_profiling, "on"_a)
      .def("launch_times", &PyProgram::launch_times)
      .def_prop_ro("first_launch", &PyProgram::first_launch)
      .def_prop_ro("inputs", [](const PyProgram& self) { return to_tuple(self.schedule().inputs); })
      .def_prop_ro("outputs",
                   [](const PyProgram& self) { return to_tuple(self.schedule().outputs); });
}

}  // namespace

NB_MODULE(_native, module) {
  // Programs live in caches until the interpreter ends; that is no leak to report.
  nb::set_leak_warnings(false);
  error_class =
      new_exception(module, "Error", "A refused argument, object or schedule.", PyExc_ValueError);
  fault_class =
      new_exception(module, "Fault", "A call whose error record was written.", PyExc_RuntimeError);
  nb::register_exception_translator(translate);
  module.attr("ABI_VERSION") = kKernelAbi;
  module.attr("ARTIFACT_FORMAT") = kArtifactFormat;
  module.attr("BASE_ARENA") = kBaseArena;
  module.attr("BASE_PACKED") = kBasePacked;
  module.attr("BASE_ERROR") = kBaseError;
  module.attr("BASE_FIRST_PARAM") = kBaseFirstParam;
  module.attr("FAULT_LOOP_LIMIT") = kFaultLoopLimit;
  bind_functions(module);
  bind_classes(module);
}

}  // namespace rlx
