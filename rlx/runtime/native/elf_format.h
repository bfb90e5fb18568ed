// The part of the ELF64 format that a relocatable object of a kernel uses. Spelt out here since
// <elf.h> exists on some systems only, and kernels are ELF on all of them.
#pragma once

#include <cstdint>

namespace rlx::elf {

struct Header {
  uint8_t ident[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, phoff, shoff;
  uint32_t flags;
  uint16_t ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};

struct Section {
  uint32_t name, type;
  uint64_t flags, addr, offset, size;
  uint32_t link, info;
  uint64_t addralign, entsize;
};

struct Symbol {
  uint32_t name;
  uint8_t info, other;
  uint16_t shndx;
  uint64_t value, size;

  uint8_t bind() const { return info >> 4; }
  uint8_t type() const { return info & 0xf; }
};

struct Rela {
  uint64_t offset, info;
  int64_t addend;

  uint32_t symbol() const { return static_cast<uint32_t>(info >> 32); }
  uint32_t type() const { return static_cast<uint32_t>(info); }
};

static_assert(sizeof(Header) == 64 && sizeof(Section) == 64);
static_assert(sizeof(Symbol) == 24 && sizeof(Rela) == 24);

inline constexpr uint8_t kClass64 = 2, kLittleEndian = 1;              // ident[4], ident[5]
inline constexpr uint16_t kRelocatable = 1;                            // Header::type
inline constexpr uint16_t kMachineX86_64 = 62, kMachineAArch64 = 183;  // Header::machine
inline constexpr uint32_t kProgBits = 1, kSymTab = 2, kStrTab = 3;     // Section::type
inline constexpr uint32_t kRelaTable = 4, kNote = 7, kNoBits = 8, kRelTable = 9;
inline constexpr uint32_t kInitArray = 14, kFiniArray = 15, kX86Unwind = 0x70000001;
inline constexpr uint64_t kWrite = 1, kAlloc = 2, kExec = 4;  // Section::flags
inline constexpr uint64_t kTls = 0x400, kCompressed = 0x800;
inline constexpr uint16_t kUndefined = 0, kAbsolute = 0xfff1, kCommon = 0xfff2;  // Symbol::shndx
inline constexpr uint8_t kLocal = 0, kGlobal = 1, kWeak = 2;                     // Symbol::bind
inline constexpr uint8_t kTlsSymbol = 6, kIndirectFunction = 10;                 // Symbol::type

}  // namespace rlx::elf
