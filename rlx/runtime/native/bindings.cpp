// The Python module rlx.runtime._native; rlx/runtime/_native.pyi documents it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "artifact.h"
#include "buffers.h"
#include "communicator_bindings.h"
#include "device_meetings.h"
#include "error.h"
#include "function_bindings.h"
#include "gil.h"
#include "held_bytes.h"
#include "memory.h"
#include "pjrt/pjrt_bindings.h"
#include "py_program.h"
#include "result_array.h"
#include "signals.h"
#include "signatures.h"
#include "size_program.h"
#include "sized_schedule.h"
#include "step_format.h"
#include "step_reader.h"
#include "weights.h"
#include "words.h"

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

void translate(const std::exception_ptr& failure, void*) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    nb::object instance = nb::borrow(error_class)(to_str(error.what()));
    instance.attr("where") = to_str(error.where);
    instance.attr("found") = to_str(error.found);
    instance.attr("expected") = to_str(error.expected);
    instance.attr("hint") = to_str(error.hint);
    instance.attr("partly_run") = error.partly_run;
    PyErr_SetObject(error_class, instance.ptr());
  } catch (const Fault& fault) {
    nb::object instance = nb::borrow(fault_class)(to_str(fault.what()));
    instance.attr("code") = fault.code;
    instance.attr("site") = fault.site;
    instance.attr("detail") = to_str(fault.detail);
    PyErr_SetObject(fault_class, instance.ptr());
  }
}

// A loaded object as Python holds it.
struct ObjectHandle {
  std::shared_ptr<const ElfObject> object;
};

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

  void use_packed(nb::handle packed) {
    weights_->use_packed(hold_constant("packed", packed.ptr()));
  }

  // A view, which keeps the weights.
  nb::object packed() {
    const std::byte* data = nullptr;
    {
      GilReleased released;
      data = weights_->packed();
    }
    auto* held = new std::shared_ptr<Weights>(weights_);
    nb::capsule owner(held, [](void* p) noexcept {
      delete static_cast<std::shared_ptr<Weights>*>(p);
    });
    const size_t bytes = static_cast<size_t>(weights_->prologue().packed_bytes) + kSlack;
    return nb::cast(nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(data, {bytes}, owner));
  }

  void release_when_packed(nb::handle file) {
    Constant mapped = hold_constant("file", file.ptr());
    GilReleased released;
    weights_->release_when_packed(std::move(mapped));
  }

 private:
  std::shared_ptr<Weights> weights_;
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

// What reads the words of steps, none where there are no bytes; their launches name `kernels`.
template <typename Read>
auto read_words(const char* name, nb::handle data, const std::vector<uintptr_t>& kernels,
                Read read) {
  const HeldBytes bytes(data);
  decltype(read(std::declval<StepReader&>())) steps;
  if (bytes.size() == 0) return steps;
  Words words({name, static_cast<const std::byte*>(bytes.data()), bytes.size()});
  StepReader reader(words, kernels.size());
  steps = read(reader);
  words.end();
  return steps;
}

void init_weights(PyWeights* self, const std::vector<ObjectHandle>& objects, nb::handle params,
                  nb::handle constants, int64_t packed_bytes, nb::handle prologue,
                  const std::vector<uintptr_t>& kernels, std::vector<uintptr_t> functions,
                  std::vector<bool> packed_params) {
  Prologue parsed;
  parsed.packed_params = std::move(packed_params);
  parsed.objects = loaded(objects);
  parsed.functions = std::move(functions);
  parsed.params = parse_signatures("params", params);
  parsed.constants = hold_constants(constants);
  parsed.packed_bytes = packed_bytes;
  parsed.steps = read_words("prologue", prologue, kernels,
                            [](StepReader& reader) { return reader.prologue(); });
  for (PrologueStep& item : parsed.steps) resolve(item.step, kernels);
  new (self) PyWeights(std::move(parsed));
}

Schedule parse_schedule(const std::vector<ObjectHandle>& objects, nb::handle constants,
                        nb::handle inputs, nb::handle outputs, nb::handle main,
                        const std::vector<uintptr_t>& kernels, std::vector<uintptr_t> functions) {
  Schedule schedule;
  schedule.objects = loaded(objects);
  schedule.functions = std::move(functions);
  schedule.constants = hold_constants(constants);
  schedule.inputs = parse_signatures("inputs", inputs);
  schedule.outputs = parse_signatures("outputs", outputs);
  schedule.main =
      read_words("main", main, kernels, [](StepReader& reader) { return reader.main(); });
  resolve(schedule.main, kernels);
  return schedule;
}

void init_program(PyProgram* self, const PyWeights* weights,
                  const std::vector<ObjectHandle>& objects, nb::handle constants, nb::handle inputs,
                  nb::handle outputs, int64_t arena_bytes, nb::handle main,
                  const std::vector<uintptr_t>& kernels, std::vector<uintptr_t> functions) {
  Schedule schedule =
      parse_schedule(objects, constants, inputs, outputs, main, kernels, std::move(functions));
  schedule.arena_bytes = arena_bytes;
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

// Words in memory of Python's.
std::vector<int64_t> words_of(const char* name, nb::handle data) {
  const HeldBytes bytes(data);
  if (bytes.size() % sizeof(int64_t) != 0) {
    throw Error(name, std::to_string(bytes.size()) + " bytes", "whole words of 8");
  }
  std::vector<int64_t> words(bytes.size() / sizeof(int64_t));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

// A size program as Python holds it.
struct PySizes {
  std::shared_ptr<const SizeProgram> program;
};

void init_sizes(PySizes* self, size_t sizes, nb::handle instructions, nb::handle guards,
                nb::handle buffers, nb::handle words, nb::handle patches, nb::handle results) {
  SizeRows rows{words_of("instructions", instructions), words_of("guards", guards),
                words_of("buffers", buffers),           words_of("words", words),
                words_of("patches", patches),           words_of("results", results)};
  new (self) PySizes{std::make_shared<SizeProgram>(sizes, std::move(rows))};
}

nb::object words_for(const PySizes& self, const std::vector<int64_t>& sizes) {
  const std::optional<std::vector<int64_t>> numbers = self.program->numbers(sizes);
  if (!numbers) return nb::none();
  const std::vector<int64_t> words = self.program->words(*numbers);
  return nb::make_tuple(nb::bytes(words.data(), words.size() * sizeof(int64_t)),
                        to_tuple(self.program->results(*numbers)));
}

void check_device_steps(nb::handle main, const std::vector<std::pair<size_t, int64_t>>& kernels,
                        std::vector<int64_t> memories) {
  std::vector<DeviceKernel> device;
  for (const auto& [bindings, params] : kernels) device.push_back({bindings, params});
  const HeldBytes bytes(main);
  Words words({"main", static_cast<const std::byte*>(bytes.data()), bytes.size()});
  StepReader reader(words, device.size(), &device);
  check_steps("main", reader.main(), std::move(memories));
}

// A schedule for many sizes, on weights.
struct PySized {
  std::shared_ptr<Weights> weights;
  SizedSchedule schedule;
};

void init_sized(PySized* self, const PySizes& sizes, const PyWeights& weights,
                const std::vector<ObjectHandle>& objects, nb::handle constants, nb::handle inputs,
                nb::handle outputs, nb::handle main, const std::vector<uintptr_t>& kernels,
                std::vector<uintptr_t> functions) {
  Schedule schedule =
      parse_schedule(objects, constants, inputs, outputs, main, kernels, std::move(functions));
  new (self) PySized{weights.weights(), {sizes.program, std::move(schedule)}};
}

std::unique_ptr<PyProgram> bind_sizes(const PySized& self, const std::vector<int64_t>& sizes) {
  std::optional<Schedule> schedule = self.schedule.bind(sizes);
  if (!schedule) return nullptr;
  return std::make_unique<PyProgram>(self.weights, std::move(*schedule), Kernels::kKnown);
}

void bind_classes(nb::module_& module) {
  nb::class_<PySizes>(module, "SizeProgram")
      .def("__init__", &init_sizes, nb::kw_only(), "sizes"_a, "instructions"_a, "guards"_a,
           "buffers"_a, "words"_a, "patches"_a, "results"_a)
      .def("serves",
           [](const PySizes& self, const std::vector<int64_t>& sizes) {
             return self.program->numbers(sizes).has_value();
           })
      .def("bind", &words_for, "sizes"_a);
  module.def("check_device_steps", &check_device_steps, "main"_a, "kernels"_a, "memories"_a);

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
           "prologue"_a = nb::bytes("", 0), "kernels"_a = nb::make_tuple(),
           "functions"_a = nb::make_tuple(), "packed_params"_a = nb::make_tuple())
      .def("use_packed", &PyWeights::use_packed, "packed"_a)
      .def("packed", &PyWeights::packed)
      .def("set_param", &PyWeights::set_param, "index"_a, "value"_a)
      .def_prop_ro("first_launch", &PyWeights::first_launch)
      .def("release_when_packed", &PyWeights::release_when_packed, "file"_a)
      .def_prop_ro("params", [](const PyWeights& self) { return to_tuple(self.params()); });

  nb::class_<PyProgram>(module, "Program")
      .def("__init__", &init_program, nb::kw_only(), "weights"_a = nb::none(), "objects"_a,
           "constants"_a = nb::make_tuple(), "inputs"_a = nb::make_tuple(),
           "outputs"_a = nb::make_tuple(), "arena_bytes"_a = 0, "main"_a = nb::bytes("", 0),
           "kernels"_a = nb::make_tuple(), "functions"_a = nb::make_tuple())
      .def("run_slots", &PyProgram::run_slots)
      .def("run_into", &PyProgram::run_into, "inputs"_a, "outputs"_a)
      .def("run_named", &PyProgram::run_named, "inputs"_a.none())
      .def("run_named_into", &PyProgram::run_named_into, "inputs"_a.none(), "outputs"_a.none())
      .def("set_profiling", &PyProgram::set_profiling, "on"_a)
      .def("launch_times", &PyProgram::launch_times)
      .def_prop_ro("first_launch", &PyProgram::first_launch)
      .def_prop_ro("inputs", [](const PyProgram& self) { return to_tuple(self.schedule().inputs); })
      .def_prop_ro("outputs",
                   [](const PyProgram& self) { return to_tuple(self.schedule().outputs); });

  nb::class_<PySized>(module, "SizedSchedule")
      .def("__init__", &init_sized, nb::kw_only(), "sizes"_a, "weights"_a, "objects"_a,
           "constants"_a, "inputs"_a, "outputs"_a, "main"_a, "kernels"_a, "functions"_a)
      .def("bind", &bind_sizes, "sizes"_a);
}

}  // namespace

NB_MODULE(_native, module) {
  // Programs live in caches until the interpreter ends; that is no leak to report.
  nb::set_leak_warnings(false);
  find_main_thread();
  error_class =
      new_exception(module, "Error", "A refused argument, object or schedule.", PyExc_ValueError);
  fault_class =
      new_exception(module, "Fault", "A call whose error record was written.", PyExc_RuntimeError);
  nb::register_exception_translator(translate);
  module.attr("ABI_VERSION") = kKernelAbi;
  module.attr("ARTIFACT_FORMAT") = kArtifactFormat;
  module.attr("STEPS_VERSION") = kStepsVersion;
  module.attr("BASE_ARENA") = kBaseArena;
  module.attr("BASE_PACKED") = kBasePacked;
  module.attr("BASE_ERROR") = kBaseError;
  module.attr("BASE_FIRST_PARAM") = kBaseFirstParam;
  module.attr("FAULT_LOOP_LIMIT") = kFaultLoopLimit;
  bind_functions(module);
  bind_communicators(module);
  bind_device_meetings(module);
  bind_pjrt(module);
  bind_result_memory(module);
  bind_classes(module);
}

}  // namespace rlx
