// Where the bits of a distance lie in an instruction of RISC-V: the unprivileged ISA, chapter 2.3
// and "C" extension; the psABI's relocations name the forms.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rlx {

enum class RiscVForm {
  kB,       // 13 bits in a conditional branch
  kJ,       // 21 bits in JAL
  kCall,    // 32 bits in AUIPC and the JALR behind it
  kHigh,    // the upper 20 of 32 bits, in AUIPC
  kLowI,    // the lower 12, in a load or ADDI
  kLowS,    // the lower 12, in a store
  kShortB,  // 9 bits in C.BEQZ and C.BNEZ
  kShortJ,  // 12 bits in C.J
};

// Bytes of the instructions that have the bits.
int width_of(RiscVForm form);

// Whether the value is another instruction's, of which this one has the lower 12 bits.
bool is_lower_half(RiscVForm form);

// Whether the value is where to jump to, whose lowest bit is not stored.
bool is_jump(RiscVForm form);

// Whether a value is in the range of a form.
bool fits(RiscVForm form, int64_t value);

// Puts a value that fits into the instruction at `place`.
void patch(RiscVForm form, std::byte* place, int64_t value);

}  // namespace rlx
