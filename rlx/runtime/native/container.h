// The container of an artifact: named, checksummed, aligned parts in one file. docs/artifact.md
// describes it byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rlx {

inline constexpr uint32_t kArtifactFormat = 10;

struct Part {
  std::string name;
  const std::byte* data = nullptr;
  size_t size = 0;
};

// The parts of a file's bytes, which they share. Throws Error that names a damaged part, or says
// why the file is none that this version reads.
std::vector<Part> unpack(const void* data, size_t size);

}  // namespace rlx
