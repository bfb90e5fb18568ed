#include "mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "error.h"

namespace rlx {

namespace {

int protection(Access access) {
  switch (access) {
    case Access::kCode:
      return PROT_READ | PROT_EXEC;
    case Access::kReadOnly:
      return PROT_READ;
    case Access::kReadWrite:
      return PROT_READ | PROT_WRITE;
  }
  return PROT_NONE;
}

}  // namespace

size_t system_page_size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

void give_back_pages(const void* file, size_t bytes) {
  // Advice: where the system does not take it, nothing is lost.
  if (bytes > 0) madvise(const_cast<void*>(file), bytes, MADV_DONTNEED);
}

Mapping::Mapping(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    throw Error("memory", std::strerror(errno), std::to_string(bytes) + " bytes of pages");
  }
  data_ = static_cast<std::byte*>(pages);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

void Mapping::prefer_huge_pages() {
#if defined(MADV_HUGEPAGE)
  // Advice only: a system without huge pages refuses, and nothing is lost.
  if (data_ != nullptr) madvise(data_, size_, MADV_HUGEPAGE);
#endif
}

void Mapping::seal(size_t offset, size_t bytes, Access access) {
  if (bytes == 0) return;
  std::byte* begin = data_ + offset;
  if (access == Access::kCode) {
    __builtin___clear_cache(reinterpret_cast<char*>(begin), reinterpret_cast<char*>(begin + bytes));
  }
  if (mprotect(begin, bytes, protection(access)) != 0) {
    throw Error("memory", std::string("mprotect: ") + std::strerror(errno),
                access == Access::kCode ? "executable pages" : "protected pages",
                "the system must let this process map code that it has compiled");
  }
}

}  // namespace rlx
