// Relocations: what LLVM and GCC emit for position-independent code of the small code model.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rlx {

enum class Machine : uint16_t { kX86_64 = 62, kAArch64 = 183, kRiscV64 = 243 };

// "x86_64", "aarch64" or "riscv64".
const char* machine_name(Machine machine);

// The machine that this process runs on.
Machine host_machine();

enum class Relocated {
  kDone,
  kUnknownType,
  kOverflow,    // the value does not fit the field
  kMisaligned,  // the value has bits below what the instruction can address
};

// Bytes that a relocation of this type changes at its place; 0 for one that changes nothing, and -1
// for an unknown type.
int relocation_width(Machine machine, uint32_t type);

// Whether the relocation addresses a table slot that holds the symbol's address, not the symbol.
bool relocation_uses_got(Machine machine, uint32_t type);

// Whether the relocation is the lower half of another one's value: its symbol is the place of the
// instruction that has the upper half.
bool relocation_is_lower_half(Machine machine, uint32_t type);

// Applies one relocation. `place` is writable memory of relocation_width() bytes that the program
// will see at address `p`; `s` is the address of the symbol (or of its table slot, where
// relocation_uses_got; or the distance of the upper half, where relocation_is_lower_half), `a` the
// addend.
Relocated relocate(Machine machine, uint32_t type, std::byte* place, uint64_t p, uint64_t s,
                   int64_t a);

}  // namespace rlx
