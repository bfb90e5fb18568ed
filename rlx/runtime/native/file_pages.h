// Pages of files that are mapped into this process: memory that can be given back and read again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rlx {

// The files that were mapped, shared with the page cache, when this was made. Such a page loses
// nothing when it is given back; of private and anonymous memory that cannot be said. Where the
// system does not list its mappings, there are none.
class FilePages {
 public:
  FilePages();

  // Whether all of [data, data + bytes) is of one file.
  bool has(const void* data, size_t bytes) const;

  // Gives the whole pages of [data, data + bytes) back to the system, if they are a file's.
  void release(const void* data, size_t bytes) const;

 private:
  std::vector<std::pair<uintptr_t, uintptr_t>> files_;  // [begin, end), ascending
};

}  // namespace rlx
