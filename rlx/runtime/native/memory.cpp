#include "memory.h"

#include <algorithm>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace rlx {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Where an allocation of this size should lie. Kernels walk packed weights and the arena in strides
// that touch many pages at a time, so large blocks go on huge pages where the system grants them.
size_t alignment_for(size_t bytes, size_t least) {
  return bytes >= 2 * kHugePage ? std::max(least, kHugePage) : least;
}

void advise_huge_pages([[maybe_unused]] void* block, [[maybe_unused]] size_t bytes) {
#ifdef MADV_HUGEPAGE
  // Advice: a system without huge pages refuses it, and nothing is lost.
  if (bytes >= 2 * kHugePage) madvise(block, bytes & ~(kHugePage - 1), MADV_HUGEPAGE);
#endif
}

void* allocated(size_t bytes, size_t least) noexcept {
  const auto alignment = std::align_val_t(alignment_for(bytes, least));
  void* found = ::operator new(bytes, alignment, std::nothrow);
  if (found != nullptr) advise_huge_pages(found, bytes);
  return found;
}

}  // namespace

void trim_heap() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

AlignedBuffer::~AlignedBuffer() {
  ::operator delete(data_, std::align_val_t(alignment_for(capacity_, alignment_)));
}

std::byte* AlignedBuffer::reserve(size_t bytes) noexcept {
  if (bytes <= capacity_) return data_;
  // A block that grew once grows again: what lies behind the bytes asked for takes no memory until
  // it is touched, and what was touched need not be faulted in anew at each larger size.
  size_t room = std::max(bytes, 2 * capacity_);
  void* grown = allocated(room, alignment_);
  if (grown == nullptr) grown = allocated(room = bytes, alignment_);
  if (grown == nullptr) return nullptr;
  ::operator delete(data_, std::align_val_t(alignment_for(capacity_, alignment_)));
  data_ = static_cast<std::byte*>(grown);
  capacity_ = room;
  return data_;
}

}  // namespace rlx
