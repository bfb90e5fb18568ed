// Elements of several ranks in one: what collectives compute.
#pragma once

#include <cstdint>

#include "element_types.h"

namespace rlx {

// out[i] = in[0][i] op in[1][i] op ... , from the first on; f16 and bf16 in f32 and rounded once.
// `reduction` is an rlx_reduction. False for one that the type has not: bools have no sum,
// complex numbers no least, and 8-bit floats neither.
bool reduce(DType dtype, int32_t reduction, const void* const* in, int32_t ranks, void* out,
            int64_t count);

}  // namespace rlx
