#include "file_pages.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "mapping.h"

namespace rlx {

FilePages::FilePages() {
#ifdef __linux__
  std::FILE* list = std::fopen("/proc/self/maps", "re");
  if (list == nullptr) return;
  char line[512];
  bool starts = true;  // else the rest of a line that the buffer could not hold: a long path
  while (std::fgets(line, sizeof line, list) != nullptr) {
    uintptr_t begin = 0, end = 0;
    char access[5] = "";
    if (starts && std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, access) == 3 &&
        access[3] == 's') {
      files_.emplace_back(begin, end);
    }
    starts = std::strchr(line, '\n') != nullptr;
  }
  std::fclose(list);
#endif
}

bool FilePages::has(const void* data, size_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(data);
  return std::any_of(files_.begin(), files_.end(), [&](const auto& file) {
    return file.first <= at && bytes <= file.second - at && at < file.second;
  });
}

void FilePages::release([[maybe_unused]] const void* data, [[maybe_unused]] size_t bytes) const {
#ifdef __linux__
  const uintptr_t page = system_page_size(), at = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (at + page - 1) / page * page, end = (at + bytes) / page * page;
  for (const auto& [first, last] : files_) {
    if (first <= begin && begin < end && end <= last) {
      give_back_pages(reinterpret_cast<const void*>(begin), end - begin);
    }
  }
#endif
}

}  // namespace rlx
