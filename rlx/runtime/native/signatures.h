// Signatures from Python values: (name, dtype, shape).
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "schedule.h"

namespace rlx {

// Throws Error that names the place in the value (such as "inputs[3].name").
std::vector<Signature> parse_signatures(const char* where, nanobind::handle value);

}  // namespace rlx
