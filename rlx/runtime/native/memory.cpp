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
  const auto alignment = std::align_val_t(alignment_for(bytes, alignment_));
  void* grown = ::operator new(bytes, alignment, std::nothrow);
  if (grown == nullptr) return nullptr;
  advise_huge_pages(grown, bytes);
  ::operator delete(data_, std::align_val_t(alignment_for(capacity_, alignment_)));
  data_ = static_cast<std::byte*>(grown);
  capacity_ = bytes;
  return data_;
}

}  // namespace rlx
