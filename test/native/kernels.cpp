// Kernels as a compiled program holds them; loaded by the tests from the object file.
#include <cstdint>

extern "C" {

// z[i] = x[i] + y[i]; buffers x, y, z.
void add(int64_t begin, int64_t end, void* const* buffers, const int64_t*, void*) {
  const auto* x = static_cast<const float*>(buffers[0]);
  const auto* y = static_cast<const float*>(buffers[1]);
  auto* z = static_cast<float*>(buffers[2]);
  for (int64_t i = begin; i < end; ++i) z[i] = x[i] + y[i];
}

// packed[i] = 2 * param[i]; counts its runs in packed[sizes[0]]. Buffers param, packed.
void pack(int64_t begin, int64_t end, void* const* buffers, const int64_t* sizes, void*) {
  const auto* param = static_cast<const float*>(buffers[0]);
  auto* packed = static_cast<float*>(buffers[1]);
  for (int64_t i = begin; i < end; ++i) packed[i] = 2 * param[i];
  if (begin == 0) packed[sizes[0]] += 1;
}
}
