#include "memory.h"

#include <new>

namespace rlx {

AlignedBuffer::~AlignedBuffer() { ::operator delete(data_, std::align_val_t(alignment_)); }

std::byte* AlignedBuffer::reserve(size_t bytes) noexcept {
  if (bytes <= capacity_) return data_;
  void* grown = ::operator new(bytes, std::align_val_t(alignment_), std::nothrow);
  if (grown == nullptr) return nullptr;
  ::operator delete(data_, std::align_val_t(alignment_));
  data_ = static_cast<std::byte*>(grown);
  capacity_ = bytes;
  return data_;
}

}  // namespace rlx
