#include "reduction.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <type_traits>

#include "communicator.h"

namespace rlx {

namespace {

// Elements at a time, so that what is read again is still in a cache.
constexpr int64_t kBlock = 2048;

// Integers wrap, which is defined for unsigned ones alone.
template <typename T>
T added(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}

template <typename T>
T multiplied(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    // Narrow unsigned ones would be promoted to int, whose product may overflow.
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

// Without the library's care for infinities, which kernels do not take either.
template <typename T>
std::complex<T> multiplied(std::complex<T> a, std::complex<T> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// A nan is the least and the largest.
template <typename T>
T least(T a, T b) {
  return a < b || a != a ? a : b;
}
template <typename T>
T largest(T a, T b) {
  return a > b || a != a ? a : b;
}

template <typename T, typename Combine>
void fold(const void* const* in, int32_t ranks, void* out, int64_t count, Combine combine) {
  T* to = static_cast<T*>(out);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    const T* first = static_cast<const T*>(in[0]);
    std::copy(first + begin, first + end, to + begin);
    for (int32_t rank = 1; rank < ranks; ++rank) {
      const T* from = static_cast<const T*>(in[rank]);
      for (int64_t i = begin; i < end; ++i) to[i] = combine(to[i], from[i]);
    }
  }
}

float wide_bf16(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

uint16_t narrow_bf16(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  if (value != value) return static_cast<uint16_t>((word >> 16) | 0x40);
  return static_cast<uint16_t>((word + 0x7FFF + ((word >> 16) & 1)) >> 16);
}

float wide_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 0x3FF;
  float value;
  if (exponent == 0) {  // zero, or subnormal: a multiple of 2^-24
    value = static_cast<float>(fraction) * 5.9604644775390625e-8f;
    return sign != 0 ? -value : value;
  }
  const uint32_t word =
      sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | (fraction << 13);
  std::memcpy(&value, &word, sizeof value);
  return value;
}

uint16_t narrow_f16(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  const auto sign = static_cast<uint16_t>((word >> 16) & 0x8000);
  word &= 0x7FFFFFFF;
  if (word > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00 | ((word >> 13) & 0x3FF));
  if (word >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // beyond the largest
  if (word < 0x38800000) {  // subnormal: the sum puts the bits to keep at the end, rounded
    float magnitude, half = 0.5f;
    std::memcpy(&magnitude, &word, sizeof magnitude);
    magnitude += half;
    uint32_t bits, base;
    std::memcpy(&bits, &magnitude, sizeof bits);
    std::memcpy(&base, &half, sizeof base);
    return static_cast<uint16_t>(sign | (bits - base));
  }
  const uint32_t odd = (word >> 13) & 1;
  return static_cast<uint16_t>(sign | ((word - 0x38000000 + 0xFFF + odd) >> 13));
}

template <float (*Wide)(uint16_t), uint16_t (*Narrow)(float), typename Combine>
void fold_narrow(const void* const* in, int32_t ranks, void* out, int64_t count, Combine combine) {
  float total[kBlock];
  uint16_t* to = static_cast<uint16_t*>(out);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(count - begin, kBlock);
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const uint16_t* from = static_cast<const uint16_t*>(in[rank]) + begin;
      if (rank == 0) {
        for (int64_t i = 0; i < size; ++i) total[i] = Wide(from[i]);
      } else {
        for (int64_t i = 0; i < size; ++i) total[i] = combine(total[i], Wide(from[i]));
      }
    }
    for (int64_t i = 0; i < size; ++i) to[begin + i] = Narrow(total[i]);
  }
}

// Calls `with` with how two elements of `T` are combined; false if they are not.
template <typename T, typename With>
bool combining(int32_t reduction, With with) {
  constexpr bool kComplex = !std::is_arithmetic_v<T>;
  switch (reduction) {
    case RLX_SUM:
      with([](T a, T b) { return added(a, b); });
      return true;
    case RLX_PROD:
      with([](T a, T b) { return multiplied(a, b); });
      return true;
    case RLX_MIN:
      if constexpr (!kComplex) with([](T a, T b) { return least(a, b); });
      return !kComplex;
    case RLX_MAX:
      if constexpr (!kComplex) with([](T a, T b) { return largest(a, b); });
      return !kComplex;
    default:
      return false;
  }
}

template <typename T>
bool reduce_as(int32_t reduction, const void* const* in, int32_t ranks, void* out, int64_t count) {
  return combining<T>(reduction,
                      [&](auto combine) { fold<T>(in, ranks, out, count, combine); });
}

}  // namespace

bool reduce(DType dtype, int32_t reduction, const void* const* in, int32_t ranks, void* out,
            int64_t count) {
  switch (dtype) {
    case DType::kF16:
      return combining<float>(reduction, [&](auto combine) {
        fold_narrow<wide_f16, narrow_f16>(in, ranks, out, count, combine);
      });
    case DType::kBF16:
      return combining<float>(reduction, [&](auto combine) {
        fold_narrow<wide_bf16, narrow_bf16>(in, ranks, out, count, combine);
      });
    case DType::kF32:
      return reduce_as<float>(reduction, in, ranks, out, count);
    case DType::kF64:
      return reduce_as<double>(reduction, in, ranks, out, count);
    case DType::kI8:
      return reduce_as<int8_t>(reduction, in, ranks, out, count);
    case DType::kI16:
      return reduce_as<int16_t>(reduction, in, ranks, out, count);
    case DType::kI32:
      return reduce_as<int32_t>(reduction, in, ranks, out, count);
    case DType::kI64:
      return reduce_as<int64_t>(reduction, in, ranks, out, count);
    case DType::kU8:
      return reduce_as<uint8_t>(reduction, in, ranks, out, count);
    case DType::kU16:
      return reduce_as<uint16_t>(reduction, in, ranks, out, count);
    case DType::kU32:
      return reduce_as<uint32_t>(reduction, in, ranks, out, count);
    case DType::kU64:
      return reduce_as<uint64_t>(reduction, in, ranks, out, count);
    case DType::kBool:
      if (reduction != RLX_MIN && reduction != RLX_MAX) return false;
      return reduce_as<uint8_t>(reduction, in, ranks, out, count);
    case DType::kC64:
      return reduce_as<std::complex<float>>(reduction, in, ranks, out, count);
    case DType::kC128:
      return reduce_as<std::complex<double>>(reduction, in, ranks, out, count);
    case DType::kF8E4M3FN:  // nothing is computed in these
    case DType::kF8E5M2:
      return false;
  }
  return false;
}

}  // namespace rlx
