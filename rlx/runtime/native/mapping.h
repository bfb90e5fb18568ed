// Pages from the system: for code and its data, never writable and executable at once, and for
// large blocks.
#pragma once

#include <cstddef>

namespace rlx {

enum class Access { kCode, kReadOnly, kReadWrite };

size_t system_page_size();

// Gives back the memory of a mapped file's pages; those that are used again are read again. Nothing
// else may be there: other memory would lose its contents.
void give_back_pages(const void* file, size_t bytes);

// Has the stack of this thread reach further than a kernel's frame does. Windows gives stacks their
// pages one by one, and a frame that steps over the next ends the process: code for other systems,
// which kernels are, does not touch them in order.
#if defined(_WIN32)
void reserve_stack();
#else
inline void reserve_stack() {}
#endif

// Zeroed private pages, writable until seal().
class Mapping {
 public:
  // Throws Error when the system has no memory for it.
  explicit Mapping(size_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // Asks for fewer, larger pages: touching a large block for the first time costs more than
  // filling it.
  void prefer_huge_pages();

  // Sets the final access of [offset, offset + bytes), whole pages, and makes new code visible to
  // instruction fetch. Throws Error when the system refuses.
  void seal(size_t offset, size_t bytes, Access access);

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace rlx
