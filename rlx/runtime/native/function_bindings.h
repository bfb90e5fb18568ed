// The functions of rlx.runtime._native; its classes are in bindings.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx {

void bind_functions(nanobind::module_& module);

}  // namespace rlx
