// The collectives of a device's program, which Python carries out step by step.
#pragma once

#include <nanobind/nanobind.h>

namespace rlx {

void bind_device_meetings(nanobind::module_& module);

}  // namespace rlx
