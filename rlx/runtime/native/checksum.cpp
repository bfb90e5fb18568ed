#include "checksum.h"

#include <cstring>
#include <initializer_list>

namespace rlx {

namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F,
                   kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63,
                   kPrime5 = 0x27D4EB2F165667C5;

template <typename T>
uint64_t load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint64_t rotate(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

uint64_t round(uint64_t lane, uint64_t value) {
  return rotate(lane + value * kPrime2, 31) * kPrime1;
}

uint64_t merge(uint64_t hash, uint64_t lane) { return (hash ^ round(0, lane)) * kPrime1 + kPrime4; }

}  // namespace

uint64_t checksum(const void* data, size_t size) {
  const auto* at = static_cast<const std::byte*>(data);
  size_t left = size;
  uint64_t hash = kPrime5;
  if (left >= 32) {
    uint64_t a = kPrime1 + kPrime2, b = kPrime2, c = 0, d = 0 - kPrime1;
    for (; left >= 32; left -= 32, at += 32) {
      a = round(a, load<uint64_t>(at));
      b = round(b, load<uint64_t>(at + 8));
      c = round(c, load<uint64_t>(at + 16));
      d = round(d, load<uint64_t>(at + 24));
    }
    hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    for (uint64_t lane : {a, b, c, d}) hash = merge(hash, lane);
  }
  hash += size;
  for (; left >= 8; left -= 8, at += 8) {
    hash = rotate(hash ^ round(0, load<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    hash = rotate(hash ^ load<uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    left -= 4, at += 4;
  }
  for (; left > 0; --left, ++at) {
    hash = rotate(hash ^ load<uint8_t>(at) * kPrime5, 11) * kPrime1;
  }
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

}  // namespace rlx
