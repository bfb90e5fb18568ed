#include "relocation.h"

#include <cstring>

#include "check.h"

namespace rlx {
namespace {

constexpr auto kX86 = Machine::kX86_64;
constexpr auto kArm = Machine::kAArch64;
constexpr auto kRisc = Machine::kRiscV64;

struct Patched {
  Relocated status;
  uint64_t value;
};

Patched apply(Machine machine, uint32_t type, uint64_t before, uint64_t p, uint64_t s,
              int64_t a = 0) {
  std::byte place[8];
  std::memcpy(place, &before, sizeof place);
  const Relocated status = relocate(machine, type, place, p, s, a);
  uint64_t after;
  std::memcpy(&after, place, sizeof after);
  return {status, after};
}

void check_value(const Patched& patched, uint64_t expected) {
  CHECK(patched.status == Relocated::kDone);
  CHECK(patched.value == expected);
}

TEST(x86_values) {
  check_value(apply(kX86, 1, 0, 0x1000, 0x123456789a, 6), 0x12345678a0);
  check_value(apply(kX86, 2, 0, 0x1000, 0x3000, -4), 0x1ffc);
  check_value(apply(kX86, 4, 0, 0x3000, 0x1000, -4), 0xffffdffc);
  check_value(apply(kX86, 24, 0, 0x3000, 0x1000), ~uint64_t{0x2000} + 1);
  check_value(apply(kX86, 10, 0, 0, 0xffffffff), 0xffffffff);
  check_value(apply(kX86, 11, 0, 0, 0x7fffffff), 0x7fffffff);
}

TEST(x86_overflow_is_seen) {
  CHECK(apply(kX86, 2, 0, 0, 0x80000000).status == Relocated::kOverflow);
  CHECK(apply(kX86, 2, 0, 0x80000001, 0).status == Relocated::kOverflow);
  CHECK(apply(kX86, 10, 0, 0, 0x100000000).status == Relocated::kOverflow);
  CHECK(apply(kX86, 11, 0, 0, 0x80000000).status == Relocated::kOverflow);
}

// The expected words are those of an assembler.
TEST(arm_instructions) {
  check_value(apply(kArm, 275, 0x90000000, 0x1000, 0x5678), 0x90000020);  // adrp x0, +4 pages
  check_value(apply(kArm, 275, 0x90000000, 0x5000, 0x4fff), 0xf0ffffe0);  // adrp x0, -1 page
  check_value(apply(kArm, 274, 0x10000000, 0x1000, 0x1007), 0x70000020);  // adr x0, +7
  check_value(apply(kArm, 277, 0x91000000, 0, 0x5678), 0x9119e000);       // add x0, x0, #0x678
  check_value(apply(kArm, 278, 0x39400000, 0, 0x5678), 0x3959e000);       // ldrb [x0, #0x678]
  check_value(apply(kArm, 285, 0xbd400000, 0, 0x5678), 0xbd467800);       // ldr s0, [x0, #0x678]
  check_value(apply(kArm, 286, 0xf9400000, 0, 0x5678), 0xf9433c00);       // ldr x0, [x0, #0x678]
  check_value(apply(kArm, 299, 0x3dc00000, 0, 0x5670), 0x3dc19c00);       // ldr q0, [x0, #0x670]
  check_value(apply(kArm, 283, 0x94000000, 0x1000, 0x1010), 0x94000004);  // bl +16
  check_value(apply(kArm, 282, 0x14000000, 0x1010, 0x1000), 0x17fffffc);  // b -16
  check_value(apply(kArm, 280, 0x54000000, 0x1000, 0x1008), 0x54000040);  // b.eq +8
  check_value(apply(kArm, 261, 0, 0x1000, 0x1008), 8);
  check_value(apply(kArm, 257, 0, 0x1000, 0x123456789a), 0x123456789a);
}

TEST(arm_refusals) {
  CHECK(apply(kArm, 286, 0xf9400000, 0, 0x5674).status == Relocated::kMisaligned);
  CHECK(apply(kArm, 283, 0x94000000, 0, 2).status == Relocated::kMisaligned);
  CHECK(apply(kArm, 283, 0x94000000, 0, uint64_t{1} << 27).status == Relocated::kOverflow);
  CHECK(apply(kArm, 275, 0x90000000, 0, uint64_t{1} << 32).status == Relocated::kOverflow);
  CHECK(apply(kArm, 274, 0x10000000, 0, 1 << 20).status == Relocated::kOverflow);
}

// The expected words are those of an assembler.
TEST(risc_instructions) {
  check_value(apply(kRisc, 16, 0x00b50063, 0x1000, 0x1abe), 0x2ab50fe3);  // beq a0, a1, +0xabe
  check_value(apply(kRisc, 16, 0x00b50063, 0x1554, 0x1000), 0xaab506e3);  // beq a0, a1, -0x554
  check_value(apply(kRisc, 17, 0x000000ef, 0, 0xa5a5e), 0x25fa50ef);      // jal ra, +0xa5a5e
  check_value(apply(kRisc, 17, 0x000000ef, 0x5a5a2, 0), 0xa5fa50ef);      // jal ra, -0x5a5a2
  // auipc and what adds the lower half, -0x544, to it: a jump, a load and a store
  check_value(apply(kRisc, 19, 0x000080e700000517, 0x1000, 0x12346abc), 0xabc080e712346517);
  check_value(apply(kRisc, 23, 0x00000517, 0x1000, 0x12346abc), 0x12346517);
  check_value(apply(kRisc, 24, 0x00053503, 0, 0x12345abc), 0xabc53503);
  check_value(apply(kRisc, 25, 0x00b53023, 0, 0x12345abc), 0xaab53e23);
  check_value(apply(kRisc, 44, 0xc101, 0x1000, 0x10aa), 0xc54d);  // c.beqz a0, +0xaa
  check_value(apply(kRisc, 44, 0xc101, 0x1056, 0x1000), 0xd54d);  // c.beqz a0, -0x56
  check_value(apply(kRisc, 45, 0xa001, 0x1000, 0x1556), 0xab99);  // c.j +0x556
  check_value(apply(kRisc, 45, 0xa001, 0x12aa, 0x1000), 0xbb99);  // c.j -0x2aa
  CHECK(relocation_width(kRisc, 19) == 8 && relocation_width(kRisc, 45) == 2);
  CHECK(relocation_width(kRisc, 16) == 4 && relocation_width(kRisc, 51) == 0);
  CHECK(relocation_is_lower_half(kRisc, 25) && !relocation_is_lower_half(kRisc, 23));
  CHECK(relocation_uses_got(kRisc, 20) && !relocation_is_lower_half(kArm, 277));
}

TEST(risc_refusals) {
  CHECK(apply(kRisc, 16, 0x00b50063, 0, 0x1000).status == Relocated::kOverflow);
  CHECK(apply(kRisc, 17, 0xef, 0, 0x100000).status == Relocated::kOverflow);
  CHECK(apply(kRisc, 23, 0x517, 0, 0x7ffff800).status == Relocated::kOverflow);
  CHECK(apply(kRisc, 44, 0xc101, 0, 0x100).status == Relocated::kOverflow);
  CHECK(apply(kRisc, 45, 0xa001, 0, 0x800).status == Relocated::kOverflow);
  CHECK(apply(kRisc, 17, 0xef, 0, 3).status == Relocated::kMisaligned);
  CHECK(apply(kRisc, 9999, 0, 0, 0).status == Relocated::kUnknownType);
}

TEST(unknown_types_are_named_unknown) {
  CHECK(relocation_width(kX86, 9999) == -1);
  CHECK(relocation_width(kArm, 2) == -1);
  CHECK(relocation_width(kX86, 0) == 0);
  CHECK(apply(kArm, 9999, 0, 0, 0).status == Relocated::kUnknownType);
}

}  // namespace
}  // namespace rlx
