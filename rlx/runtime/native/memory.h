// Owned memory with a stated alignment.
#pragma once

#include <atomic>
#include <cstddef>

namespace rlx {

inline constexpr size_t kCacheLine = 64;
// An alignment, not a promise about the system's pages (which are larger on some machines).
inline constexpr size_t kPage = 4096;
// Readable bytes behind every block that kernels prefetch or over-read.
inline constexpr size_t kSlack = 64 * 1024;

// Gives the free pages of the C library's heap back to the system, where it keeps them.
void trim_heap();

// A block of aligned memory, grown on demand, to twice its size at least; growing loses the
// contents.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(size_t alignment = kCacheLine) : alignment_(alignment) {}
  ~AlignedBuffer();
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  // Makes room for `bytes`. Returns nullptr when there is no memory for it (or bytes is 0 and
  // nothing was ever allocated); what was held before is then still held.
  std::byte* reserve(size_t bytes) noexcept;
  std::byte* data() const { return data_; }
  size_t capacity() const { return capacity_; }

 private:
  size_t alignment_;
  size_t capacity_ = 0;
  std::byte* data_ = nullptr;
};

// A few objects kept for reuse, taken and given back without a lock. Holds at most kSlots; an
// object given back to a full list is deleted. A fork in the middle of take() or give() loses at
// most that object in the child, never the list.
template <typename T>
class FreeList {
 public:
  static constexpr int kSlots = 16;

  ~FreeList() {
    for (auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
  }

  // nullptr when none is free.
  T* take() noexcept {
    for (auto& slot : slots_) {
      if (slot.load(std::memory_order_relaxed) == nullptr) continue;
      if (T* item = slot.exchange(nullptr, std::memory_order_acquire)) return item;
    }
    return nullptr;
  }

  void give(T* item) noexcept {
    for (auto& slot : slots_) {
      T* none = nullptr;
      if (slot.load(std::memory_order_relaxed) != nullptr) continue;
      if (slot.compare_exchange_strong(none, item, std::memory_order_release,
                                       std::memory_order_relaxed)) {
        return;
      }
    }
    delete item;
  }

 private:
  std::atomic<T*> slots_[kSlots] = {};
};

}  // namespace rlx
