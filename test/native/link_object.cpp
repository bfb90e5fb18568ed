// usage: link_object x86_64|aarch64|riscv64 FILE
// Links the object as its machine would, without running it, and prints its symbols; 1 if refused.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "elf_loader.h"
#include "error.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: link_object x86_64|aarch64|riscv64 FILE\n");
    return 2;
  }
  auto machine = rlx::Machine::kX86_64;
  for (const auto known : {rlx::Machine::kAArch64, rlx::Machine::kRiscV64}) {
    if (rlx::machine_name(known) == std::string(argv[1])) machine = known;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  try {
    const auto object = rlx::ElfObject::load(bytes.data(), bytes.size(), machine);
    for (const auto& [name, address] : object->symbols()) std::printf("%s\n", name.c_str());
  } catch (const rlx::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
