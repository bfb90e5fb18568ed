// Loads a relocatable ELF64 object into this process: no linker, no file, no symbol from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "mapping.h"
#include "relocation.h"

namespace rlx {

// A loaded object. Immutable; its pages are unmapped with the last shared_ptr.
class ElfObject {
 public:
  // Copies what it needs of the `size` bytes at `data`, which need no alignment and no trust.
  // Throws Error on anything malformed, of another machine, or in need of an outer symbol. A
  // `machine` other than the host's is for looking at the linked bytes only.
  static std::shared_ptr<const ElfObject> load(const void* data, size_t size,
                                               Machine machine = host_machine());

  // The address of a global symbol. Throws Error naming it when there is none.
  const std::byte* symbol(const std::string& name) const;
  const std::map<std::string, const std::byte*>& symbols() const { return symbols_; }

  // Whether an address lies in this object's executable sections.
  bool contains_code(uintptr_t address) const;

 private:
  friend class ElfLoader;
  explicit ElfObject(size_t bytes) : mapping_(bytes) {}

  Mapping mapping_;
  size_t code_bytes_ = 0;  // code comes first
  std::map<std::string, const std::byte*> symbols_;
};

}  // namespace rlx
