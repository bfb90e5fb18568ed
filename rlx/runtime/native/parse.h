// Schedules from plain Python values; rlx/runtime/_native.pyi documents their form.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "schedule.h"

namespace rlx {

// A loaded object as Python holds it.
struct ObjectHandle {
  std::shared_ptr<const ElfObject> object;
};

// Each throws Error that names the place in the value (such as "main[3].body[0]").
std::vector<Signature> parse_signatures(const char* where, nanobind::handle value);
std::vector<PrologueStep> parse_prologue(nanobind::handle value);
Steps parse_main(nanobind::handle value);

}  // namespace rlx
