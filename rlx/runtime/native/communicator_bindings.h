// Communicators in the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx {

void bind_communicators(nanobind::module_& module);

}  // namespace rlx
