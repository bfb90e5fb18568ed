// The table of PJRT as Python hands it to JAX.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx {

void bind_pjrt(nanobind::module_& module);

}  // namespace rlx
