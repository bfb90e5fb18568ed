// The part of rlx.runtime._native that switches tracing and reads what was recorded.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx {

void bind_trace(nanobind::module_& module);

}  // namespace rlx
