#include "kept_blocks.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace rlx {

namespace {

// A block serves requests that leave at most this part of it unused.
constexpr size_t kUnused = 8;

bool fits(const AlignedBuffer& block, size_t bytes) {
  return block.capacity() >= bytes && block.capacity() - bytes <= block.capacity() / kUnused;
}

}  // namespace

KeptBlocks::Block KeptBlocks::take(size_t bytes) {
  const auto last = std::find_if(blocks_.rbegin(), blocks_.rend(),
                                 [&](const Block& block) { return fits(*block, bytes); });
  if (last != blocks_.rend()) {
    Block found = std::move(*last);
    blocks_.erase(std::prev(last.base()));
    bytes_ -= found->capacity();
    return found;
  }
  auto block = std::make_unique<AlignedBuffer>();
  if (block->reserve(bytes) == nullptr) {
    blocks_.clear();
    bytes_ = 0;
    if (block->reserve(bytes) == nullptr) return nullptr;
  }
  return block;
}

void KeptBlocks::give(Block block) noexcept {
  const size_t given = block->capacity();
  if (given > limit_) return;
  size_t gone = 0;
  while (bytes_ + given > limit_) bytes_ -= blocks_[gone++]->capacity();
  blocks_.erase(blocks_.begin(), blocks_.begin() + static_cast<std::ptrdiff_t>(gone));
  try {
    blocks_.push_back(std::move(block));
    bytes_ += given;
  } catch (const std::bad_alloc&) {
    // There was no room to note it: it is freed.
  }
}

}  // namespace rlx
