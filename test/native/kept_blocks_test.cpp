#include "kept_blocks.h"

#include <utility>

#include "check.h"

namespace rlx {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(a_block_that_was_given_back_is_taken_again) {
  KeptBlocks kept(8 * kMiB);
  KeptBlocks::Block first = kept.take(kMiB), second = kept.take(kMiB);
  const std::byte *a = first->data(), *b = second->data();
  CHECK(a != b);
  CHECK(kept.bytes() == 0);
  kept.give(std::move(first));
  kept.give(std::move(second));
  CHECK(kept.bytes() == 2 * kMiB);
  first = kept.take(kMiB);
  CHECK(first->data() == b);  // the last one
  second = kept.take(kMiB - kMiB / 8);
  CHECK(second->data() == a);
  CHECK(kept.bytes() == 0);
}

TEST(a_block_serves_no_request_of_another_size) {
  KeptBlocks kept(8 * kMiB);
  kept.give(kept.take(kMiB));
  const KeptBlocks::Block less = kept.take(kMiB / 2), more = kept.take(kMiB + 1);
  CHECK(less->capacity() < kMiB && more->capacity() > kMiB);
  CHECK(kept.bytes() == kMiB);
}

TEST(kept_blocks_are_bounded_and_the_oldest_goes_first) {
  KeptBlocks kept(4 * kMiB);
  KeptBlocks::Block old = kept.take(3 * kMiB), young = kept.take(2 * kMiB);
  const std::byte* last = young->data();
  kept.give(std::move(old));
  kept.give(std::move(young));
  CHECK(kept.bytes() == 2 * kMiB);
  kept.give(kept.take(5 * kMiB));  // more than all that may be kept
  CHECK(kept.bytes() == 2 * kMiB);
  CHECK(kept.take(2 * kMiB)->data() == last);
}

TEST(without_memory_there_is_no_block) {
  KeptBlocks kept(4 * kMiB);
  kept.give(kept.take(kMiB));
  CHECK(kept.take(size_t{1} << 62) == nullptr);
  CHECK(kept.bytes() == 0);  // what was kept is given up for it
}

}  // namespace
}  // namespace rlx
