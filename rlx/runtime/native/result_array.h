// NumPy arrays for results, on memory that is aligned to cache lines and used again.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>

namespace rlx {

// Results below it are NumPy's own: they are made in a fraction of a microsecond.
inline constexpr size_t kLeastKept = 64 * 1024;

// How much memory of results is kept whose arrays are gone.
inline constexpr size_t kMostKept = size_t{128} << 20;

// The Python class of what such arrays are based on. Call once, before any result_memory().
void bind_result_memory(nanobind::module_& module);

// A writable buffer of `bytes`, with undefined contents. It is used again once the last array,
// view or export of it is gone. MemoryError when there is none.
nanobind::object result_memory(size_t bytes);

}  // namespace rlx
