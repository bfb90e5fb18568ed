#include "memory.h"

#include <cstdint>

#include "check.h"

namespace rlx {
namespace {

TEST(aligned_buffer_grows_and_keeps_its_alignment) {
  AlignedBuffer buffer;
  CHECK(buffer.data() == nullptr);
  std::byte* small = buffer.reserve(100);
  CHECK(reinterpret_cast<uintptr_t>(small) % kCacheLine == 0);
  CHECK(buffer.reserve(50) == small);
  CHECK(buffer.capacity() == 100);
  CHECK(reinterpret_cast<uintptr_t>(buffer.reserve(100000)) % kCacheLine == 0);
  CHECK(buffer.capacity() == 100000);
  std::byte* grown = buffer.reserve(100001);
  CHECK(buffer.capacity() == 200000);
  CHECK(buffer.reserve(150000) == grown);
}

TEST(aligned_buffer_survives_a_failed_growth) {
  AlignedBuffer buffer;
  std::byte* held = buffer.reserve(100);
  CHECK(buffer.reserve(size_t{1} << 62) == nullptr);  // more than any address space
  CHECK(buffer.data() == held);
}

TEST(free_list_gives_back_what_it_was_given_and_deletes_the_rest) {
  static int alive = 0;
  struct Counted {
    Counted() { ++alive; }
    ~Counted() { --alive; }
  };
  {
    FreeList<Counted> list;
    CHECK(list.take() == nullptr);
    for (int i = 0; i < FreeList<Counted>::kSlots + 3; ++i) list.give(new Counted);
    CHECK(alive == FreeList<Counted>::kSlots);
    delete list.take();
    CHECK(alive == FreeList<Counted>::kSlots - 1);
  }
  CHECK(alive == 0);
}

}  // namespace
}  // namespace rlx
