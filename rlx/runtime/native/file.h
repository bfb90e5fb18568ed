// A file in memory.
#pragma once

#include <cstddef>
#include <string>

namespace rlx {

// The contents of a file, mapped and only ever read.
class MappedFile {
 public:
  // Throws Error when the file cannot be read.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace rlx
