#include "relocation.h"

#include <cstring>

#include "riscv_fields.h"

namespace rlx {

namespace {

// How a relocation's value is computed and where its bits go.
enum class Field {
  kNone,
  kAbs64,    // S + A
  kRel64,    // S + A - P
  kAbsU32,   // S + A, zero-extended by its reader
  kAbsS32,   // S + A, sign-extended by its reader
  kRel32,    // S + A - P
  kAdrPage,  // Page(S + A) - Page(P), 21 bits of 4 KiB pages, split in ADRP
  kAdr,      // S + A - P, 21 bits, split in ADR
  kLow12,    // bits of (S + A) below 4 KiB, scaled by the access size, in ADD, LDR, STR
  kBranch,   // S + A - P, a signed count of instructions
  kRiscV,    // S + A - P, scattered over an instruction of RISC-V
};

struct Kind {
  uint32_t type;
  Field field;
  int bits;   // kLow12: log2 of the access size; kBranch: width of the field; kRiscV: its form
  int shift;  // kBranch: lowest bit of the field
  bool got;   // the symbol's table slot stands for the symbol
};

constexpr Kind kX86Kinds[] = {
    {0, Field::kNone, 0, 0, false},     // R_X86_64_NONE
    {1, Field::kAbs64, 0, 0, false},    // R_X86_64_64
    {2, Field::kRel32, 0, 0, false},    // R_X86_64_PC32
    {4, Field::kRel32, 0, 0, false},    // R_X86_64_PLT32: every callee is in the object
    {9, Field::kRel32, 0, 0, true},     // R_X86_64_GOTPCREL
    {10, Field::kAbsU32, 0, 0, false},  // R_X86_64_32
    {11, Field::kAbsS32, 0, 0, false},  // R_X86_64_32S
    {24, Field::kRel64, 0, 0, false},   // R_X86_64_PC64
    {41, Field::kRel32, 0, 0, true},    // R_X86_64_GOTPCRELX
    {42, Field::kRel32, 0, 0, true},    // R_X86_64_REX_GOTPCRELX
};

constexpr Kind kArmKinds[] = {
    {0, Field::kNone, 0, 0, false},       // R_AARCH64_NONE
    {256, Field::kNone, 0, 0, false},     // R_AARCH64_NONE, withdrawn number
    {257, Field::kAbs64, 0, 0, false},    // R_AARCH64_ABS64
    {258, Field::kAbsU32, 0, 0, false},   // R_AARCH64_ABS32
    {260, Field::kRel64, 0, 0, false},    // R_AARCH64_PREL64
    {261, Field::kRel32, 0, 0, false},    // R_AARCH64_PREL32
    {273, Field::kBranch, 19, 5, false},  // R_AARCH64_LD_PREL_LO19
    {274, Field::kAdr, 0, 0, false},      // R_AARCH64_ADR_PREL_LO21
    {275, Field::kAdrPage, 0, 0, false},  // R_AARCH64_ADR_PREL_PG_HI21
    {276, Field::kAdrPage, 0, 0, false},  // R_AARCH64_ADR_PREL_PG_HI21_NC
    {277, Field::kLow12, 0, 0, false},    // R_AARCH64_ADD_ABS_LO12_NC
    {278, Field::kLow12, 0, 0, false},    // R_AARCH64_LDST8_ABS_LO12_NC
    {279, Field::kBranch, 14, 5, false},  // R_AARCH64_TSTBR14
    {280, Field::kBranch, 19, 5, false},  // R_AARCH64_CONDBR19
    {282, Field::kBranch, 26, 0, false},  // R_AARCH64_JUMP26
    {283, Field::kBranch, 26, 0, false},  // R_AARCH64_CALL26
    {284, Field::kLow12, 1, 0, false},    // R_AARCH64_LDST16_ABS_LO12_NC
    {285, Field::kLow12, 2, 0, false},    // R_AARCH64_LDST32_ABS_LO12_NC
    {286, Field::kLow12, 3, 0, false},    // R_AARCH64_LDST64_ABS_LO12_NC
    {299, Field::kLow12, 4, 0, false},    // R_AARCH64_LDST128_ABS_LO12_NC
    {311, Field::kAdrPage, 0, 0, true},   // R_AARCH64_ADR_GOT_PAGE
    {312, Field::kLow12, 3, 0, true},     // R_AARCH64_LD64_GOT_LO12_NC
};

constexpr int form(RiscVForm form) { return static_cast<int>(form); }

constexpr Kind kRiscVKinds[] = {
    {0, Field::kNone, 0, 0, false},                             // R_RISCV_NONE
    {1, Field::kAbsU32, 0, 0, false},                           // R_RISCV_32
    {2, Field::kAbs64, 0, 0, false},                            // R_RISCV_64
    {16, Field::kRiscV, form(RiscVForm::kB), 0, false},         // R_RISCV_BRANCH
    {17, Field::kRiscV, form(RiscVForm::kJ), 0, false},         // R_RISCV_JAL
    {18, Field::kRiscV, form(RiscVForm::kCall), 0, false},      // R_RISCV_CALL
    {19, Field::kRiscV, form(RiscVForm::kCall), 0, false},      // R_RISCV_CALL_PLT
    {20, Field::kRiscV, form(RiscVForm::kHigh), 0, true},       // R_RISCV_GOT_HI20
    {23, Field::kRiscV, form(RiscVForm::kHigh), 0, false},      // R_RISCV_PCREL_HI20
    {24, Field::kRiscV, form(RiscVForm::kLowI), 0, false},      // R_RISCV_PCREL_LO12_I
    {25, Field::kRiscV, form(RiscVForm::kLowS), 0, false},      // R_RISCV_PCREL_LO12_S
    {44, Field::kRiscV, form(RiscVForm::kShortB), 0, false},    // R_RISCV_RVC_BRANCH
    {45, Field::kRiscV, form(RiscVForm::kShortJ), 0, false},    // R_RISCV_RVC_JUMP
    {51, Field::kNone, 0, 0, false},                            // R_RISCV_RELAX
    {57, Field::kRel32, 0, 0, false},                           // R_RISCV_32_PCREL
};

template <size_t N>
const Kind* find_in(const Kind (&kinds)[N], uint32_t type) {
  for (const Kind& kind : kinds) {
    if (kind.type == type) return &kind;
  }
  return nullptr;
}

const Kind* find_kind(Machine machine, uint32_t type) {
  switch (machine) {
    case Machine::kX86_64:
      return find_in(kX86Kinds, type);
    case Machine::kAArch64:
      return find_in(kArmKinds, type);
    case Machine::kRiscV64:
      return find_in(kRiscVKinds, type);
  }
  return nullptr;
}

bool fits_signed(int64_t value, int bits) {
  const int64_t limit = int64_t{1} << (bits - 1);
  return value >= -limit && value < limit;
}

template <typename T>
void store(std::byte* place, T value) {
  std::memcpy(place, &value, sizeof value);
}

// Replaces the bits of an instruction that `mask` selects.
void patch(std::byte* place, uint32_t mask, uint32_t bits) {
  uint32_t instruction;
  std::memcpy(&instruction, place, sizeof instruction);
  store(place, (instruction & ~mask) | (bits & mask));
}

// ADR and ADRP split their 21 bits: the two lowest at 29, the others at 5.
void patch_adr(std::byte* place, int64_t value) {
  const auto bits = static_cast<uint32_t>(value);
  patch(place, 0x60ffffe0u, (bits & 3) << 29 | ((bits >> 2) & 0x7ffff) << 5);
}

Relocated patch_low12(std::byte* place, uint64_t target, int log2_size) {
  const auto low = static_cast<uint32_t>(target & 0xfff);
  if ((low & ((1u << log2_size) - 1)) != 0) return Relocated::kMisaligned;
  patch(place, 0xfffu << 10, (low >> log2_size) << 10);
  return Relocated::kDone;
}

Relocated patch_branch(std::byte* place, int64_t distance, int bits, int shift) {
  if (distance % 4 != 0) return Relocated::kMisaligned;
  if (!fits_signed(distance / 4, bits)) return Relocated::kOverflow;
  const uint32_t mask = ((1u << bits) - 1) << shift;
  patch(place, mask, static_cast<uint32_t>(distance / 4) << shift);
  return Relocated::kDone;
}

template <typename T>
Relocated store_if(bool fits, std::byte* place, T value) {
  if (!fits) return Relocated::kOverflow;
  store(place, value);
  return Relocated::kDone;
}

}  // namespace

const char* machine_name(Machine machine) {
  switch (machine) {
    case Machine::kX86_64:
      return "x86_64";
    case Machine::kAArch64:
      return "aarch64";
    case Machine::kRiscV64:
      return "riscv64";
  }
  return "";
}

Machine host_machine() {
#if defined(__x86_64__)
  return Machine::kX86_64;
#elif defined(__aarch64__)
  return Machine::kAArch64;
#elif defined(__riscv) && __riscv_xlen == 64
  return Machine::kRiscV64;
#else
#error "the object loader knows x86-64, aarch64 and riscv64"
#endif
}

int relocation_width(Machine machine, uint32_t type) {
  const Kind* kind = find_kind(machine, type);
  if (kind == nullptr) return -1;
  if (kind->field == Field::kNone) return 0;
  if (kind->field == Field::kRiscV) return width_of(static_cast<RiscVForm>(kind->bits));
  return kind->field == Field::kAbs64 || kind->field == Field::kRel64 ? 8 : 4;
}

bool relocation_uses_got(Machine machine, uint32_t type) {
  const Kind* kind = find_kind(machine, type);
  return kind != nullptr && kind->got;
}

bool relocation_is_lower_half(Machine machine, uint32_t type) {
  const Kind* kind = find_kind(machine, type);
  if (kind == nullptr || kind->field != Field::kRiscV) return false;
  return is_lower_half(static_cast<RiscVForm>(kind->bits));
}

Relocated relocate(Machine machine, uint32_t type, std::byte* place, uint64_t p, uint64_t s,
                   int64_t a) {
  const Kind* kind = find_kind(machine, type);
  if (kind == nullptr) return Relocated::kUnknownType;
  const uint64_t target = s + static_cast<uint64_t>(a);
  const auto distance = static_cast<int64_t>(target - p);
  switch (kind->field) {
    case Field::kNone:
      return Relocated::kDone;
    case Field::kAbs64:
      return store_if(true, place, target);
    case Field::kRel64:
      return store_if(true, place, distance);
    case Field::kAbsU32:
      return store_if(target <= UINT32_MAX, place, static_cast<uint32_t>(target));
    case Field::kAbsS32:
      return store_if(fits_signed(static_cast<int64_t>(target), 32), place,
                      static_cast<uint32_t>(target));
    case Field::kRel32:
      return store_if(fits_signed(distance, 32), place, static_cast<uint32_t>(distance));
    case Field::kAdrPage: {
      const int64_t pages =
          static_cast<int64_t>((target & ~uint64_t{0xfff}) - (p & ~uint64_t{0xfff})) >> 12;
      if (!fits_signed(pages, 21)) return Relocated::kOverflow;
      patch_adr(place, pages);
      return Relocated::kDone;
    }
    case Field::kAdr:
      if (!fits_signed(distance, 21)) return Relocated::kOverflow;
      patch_adr(place, distance);
      return Relocated::kDone;
    case Field::kLow12:
      return patch_low12(place, target, kind->bits);
    case Field::kBranch:
      return patch_branch(place, distance, kind->bits, kind->shift);
    case Field::kRiscV: {
      const auto form = static_cast<RiscVForm>(kind->bits);
      const auto value = is_lower_half(form) ? static_cast<int64_t>(s) : distance;
      if (!fits(form, value)) return Relocated::kOverflow;
      if (value % 2 != 0 && is_jump(form)) return Relocated::kMisaligned;
      patch(form, place, value);
      return Relocated::kDone;
    }
  }
  return Relocated::kUnknownType;
}

}  // namespace rlx
