#include "trace_bindings.h"

#include <cstddef>

#include "trace.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rlx {

namespace {

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

}  // namespace

void bind_trace(nb::module_& module) {
  module.def(
      "trace_start", [](size_t capacity) { Trace::instance().start(capacity); }, "capacity"_a);
  module.def("trace_stop", [] { Trace::instance().stop(); });
  module.def("trace_events", &trace_events);
}

}  // namespace rlx
