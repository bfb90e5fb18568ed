#include "riscv_fields.h"

#include <cstring>

namespace rlx {

namespace {

// `count` bits of a value from bit `from` on, moved to bit `to` of an instruction.
struct Piece {
  int from, count, to;
};

constexpr Piece kB[] = {{12, 1, 31}, {5, 6, 25}, {1, 4, 8}, {11, 1, 7}};
constexpr Piece kJ[] = {{20, 1, 31}, {1, 10, 21}, {11, 1, 20}, {12, 8, 12}};
constexpr Piece kU[] = {{12, 20, 12}};
constexpr Piece kI[] = {{0, 12, 20}};
constexpr Piece kS[] = {{5, 7, 25}, {0, 5, 7}};
constexpr Piece kShortB[] = {{8, 1, 12}, {3, 2, 10}, {6, 2, 5}, {1, 2, 3}, {5, 1, 2}};
constexpr Piece kShortJ[] = {{11, 1, 12}, {4, 1, 11}, {8, 2, 9}, {10, 1, 8},
                             {6, 1, 7},   {7, 1, 6},  {1, 3, 3}, {5, 1, 2}};

template <typename Word, size_t N>
void scatter(const Piece (&pieces)[N], std::byte* place, uint32_t value) {
  Word instruction;
  std::memcpy(&instruction, place, sizeof instruction);
  for (const Piece& piece : pieces) {
    const uint32_t mask = (1u << piece.count) - 1;
    const uint32_t bits = value >> piece.from & mask;
    instruction = static_cast<Word>((instruction & ~(mask << piece.to)) | bits << piece.to);
  }
  std::memcpy(place, &instruction, sizeof instruction);
}

bool fits_signed(int64_t value, int bits) {
  const int64_t limit = int64_t{1} << (bits - 1);
  return value >= -limit && value < limit;
}

// The lower 12 bits are added with their sign, so the upper ones are rounded.
constexpr int64_t kRounding = 0x800;

}  // namespace

int width_of(RiscVForm form) {
  if (form == RiscVForm::kCall) return 8;
  return form == RiscVForm::kShortB || form == RiscVForm::kShortJ ? 2 : 4;
}

bool is_lower_half(RiscVForm form) { return form == RiscVForm::kLowI || form == RiscVForm::kLowS; }

bool is_jump(RiscVForm form) { return form != RiscVForm::kHigh && !is_lower_half(form); }

bool fits(RiscVForm form, int64_t value) {
  switch (form) {
    case RiscVForm::kB:
      return fits_signed(value, 13);
    case RiscVForm::kJ:
      return fits_signed(value, 21);
    case RiscVForm::kShortB:
      return fits_signed(value, 9);
    case RiscVForm::kShortJ:
      return fits_signed(value, 12);
    default:
      return fits_signed(value + kRounding, 32);
  }
}

void patch(RiscVForm form, std::byte* place, int64_t value) {
  const auto bits = static_cast<uint32_t>(value);
  switch (form) {
    case RiscVForm::kB:
      return scatter<uint32_t>(kB, place, bits);
    case RiscVForm::kJ:
      return scatter<uint32_t>(kJ, place, bits);
    case RiscVForm::kCall:
      scatter<uint32_t>(kI, place + 4, bits);
      [[fallthrough]];
    case RiscVForm::kHigh:
      return scatter<uint32_t>(kU, place, static_cast<uint32_t>(value + kRounding));
    case RiscVForm::kLowI:
      return scatter<uint32_t>(kI, place, bits);
    case RiscVForm::kLowS:
      return scatter<uint32_t>(kS, place, bits);
    case RiscVForm::kShortB:
      return scatter<uint16_t>(kShortB, place, bits);
    case RiscVForm::kShortJ:
      return scatter<uint16_t>(kShortJ, place, bits);
  }
}

}  // namespace rlx
