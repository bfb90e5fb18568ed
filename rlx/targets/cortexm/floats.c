/* Functions that LLVM calls where a core has no instruction for them. They are those of C's library,
   to the bit, but for which nan it is. */
#include <stdint.h>

float truncf(float), floorf(float), ceilf(float), roundevenf(float), sqrtf(float);
float rintf(float), nearbyintf(float), fmaximumf(float, float), fminimumf(float, float);

static uint32_t bits_of(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  return u;
}

static float of_bits(uint32_t u) {
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}

float truncf(float x) {
  uint32_t u = bits_of(x), sign = u & 0x80000000u;
  int exponent = (int)(u >> 23 & 255) - 127;
  if (exponent >= 23) return x;
  if (exponent < 0) return of_bits(sign);
  return of_bits(u & ~(0x7fffffu >> exponent));
}

float floorf(float x) {
  float t = truncf(x);
  return t > x ? t - 1 : t;
}

float ceilf(float x) {
  float t = truncf(x);
  return t < x ? t + 1 : t;
}

/* Of a number below 2^23, a sum with that has no bits for fractions. */
float roundevenf(float x) {
  uint32_t u = bits_of(x), sign = u & 0x80000000u;
  if ((u >> 23 & 255) >= 127 + 23) return x;
  float whole = of_bits(u ^ sign) + 8388608.0f;
  return of_bits(bits_of(whole - 8388608.0f) | sign);
}

float rintf(float x) { return roundevenf(x); }
float nearbyintf(float x) { return roundevenf(x); }

/* nan if one of them is; 0 is more than -0. */
float fmaximumf(float x, float y) {
  if (x != x) return x;
  if (y != y) return y;
  if (x == y) return of_bits(bits_of(x) & bits_of(y));
  return x > y ? x : y;
}

float fminimumf(float x, float y) {
  if (x != x) return x;
  if (y != y) return y;
  if (x == y) return of_bits(bits_of(x) | bits_of(y));
  return x < y ? x : y;
}

/* The root of 50 bits has 25: the last one, and what is left, say how to round. */
float sqrtf(float x) {
  uint32_t u = bits_of(x);
  if (!(u << 1) || u == 0x7f800000u) return x;
  if (u > 0x7f800000u) return of_bits(0x7fc00000u);
  int exponent = (int)(u >> 23) - 127;
  uint32_t m = u & 0x7fffffu;
  if (exponent == -127) {
    exponent = -126;
    while (!(m & 0x800000u)) m <<= 1, exponent--;
  }
  m |= 0x800000u;
  if (exponent & 1) m <<= 1, exponent--;
  uint64_t left = (uint64_t)m << 25;
  uint32_t root = 0;
  for (int bit = 24; bit >= 0; bit--) {
    uint64_t part = ((uint64_t)root << 1 | (uint64_t)1 << bit) << bit;
    if (part <= left) left -= part, root |= 1u << bit;
  }
  uint32_t up = root & 1 & (left || root & 2);
  return of_bits(((uint32_t)(exponent / 2 + 127) << 23) + ((root >> 1) - 0x800000u) + up);
}
