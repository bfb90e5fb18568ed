#include "function_bindings.h"

#include <nanobind/stl/string.h>

#include <cstddef>
#include <string>

#include "artifact.h"
#include "checksum.h"
#include "cpu_features.h"
#include "elf_loader.h"
#include "gil.h"
#include "held_bytes.h"
#include "memory.h"
#include "pool.h"
#include "thread_count.h"
#include "trace.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rlx {

namespace {

uint64_t checksum_of(nb::handle data) {
  const HeldBytes bytes(data);
  GilReleased released;
  return checksum(bytes.data(), bytes.size());
}

void check_artifact(nb::handle data) {
  const HeldBytes bytes(data);
  GilReleased released;
  read_artifact(bytes.data(), bytes.size());
}

nb::frozenset feature_set() {
  nb::list names;
  for (const std::string& name : cpu_features()) names.append(name);
  return nb::frozenset(names);
}

nb::tuple trace_events() {
  const Trace::Snapshot snapshot = Trace::instance().snapshot();
  nb::list parts;
  for (const Trace::Part& part : snapshot.parts) {
    parts.append(
        nb::make_tuple(part.thread, part.worker,
                       nb::bytes(part.events.data(), part.events.size() * sizeof(TraceEvent))));
  }
  return nb::make_tuple(parts, snapshot.dropped);
}

// The end of DLPack's DLManagedTensor, whose tensor has 48 bytes.
struct ManagedTensor {
  std::byte tensor[48];
  void* context;
  void (*release)(ManagedTensor*);
};

// Releases what nobody has taken. A capsule may go while an error is on its way.
void drop_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  auto* managed = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  managed->release(managed);
  PyErr_Restore(type, value, trace);
}

nb::object dlpack_capsule(uintptr_t managed) {
  return nb::steal(PyCapsule_New(reinterpret_cast<void*>(managed), "dltensor", &drop_capsule));
}

}  // namespace

void bind_functions(nb::module_& module) {
  module.def(
      "set_threads",
      [](int64_t n) {
        GilReleased released;
        Pool::instance().set_threads(n);
      },
      "n"_a);
  module.def("num_threads", [] { return Pool::instance().threads(); });
  module.def("default_threads", &default_threads);
  module.def("check_artifact", &check_artifact, "data"_a);
  module.def("checksum", &checksum_of, "data"_a);
  module.def("cpu_features", &feature_set);
  module.def("dlpack_capsule", &dlpack_capsule, "managed"_a);
  module.def("trim_heap", [] {
    GilReleased released;
    trim_heap();
  });
  module.def("machine", [] { return machine_name(host_machine()); });
  module.def(
      "trace_start", [](size_t capacity) { Trace::instance().start(capacity); }, "capacity"_a);
  module.def("trace_stop", [] { Trace::instance().stop(); });
  module.def("trace_events", &trace_events);
}

}  // namespace rlx
