#include "file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "error.h"

namespace rlx {

namespace {

// Closes a file at the end of its scope: a mapping needs no open file.
struct Descriptor {
  ~Descriptor() {
    if (number >= 0) close(number);
  }
  int number;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat facts {};
  if (file.number < 0 || fstat(file.number, &facts) != 0) {
    throw Error("'" + path + "'", std::strerror(errno), "a file to read");
  }
  if (!S_ISREG(facts.st_mode)) throw Error("'" + path + "'", "no plain file", "a file to read");
  size_ = static_cast<size_t>(facts.st_size);
  if (size_ == 0) return;
  void* pages = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (pages == MAP_FAILED) throw Error("'" + path + "'", std::strerror(errno), "memory to map it");
  data_ = static_cast<std::byte*>(pages);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace rlx
