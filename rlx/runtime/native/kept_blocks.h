// Memory that is taken again: blocks that were given back wait for a request of about their size.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "memory.h"

namespace rlx {

// The memory of results. A new block costs a page fault a page, and a copy of each of its cache
// lines from memory; what was given back last is still in the caches. Not safe between threads.
class KeptBlocks {
 public:
  using Block = std::unique_ptr<AlignedBuffer>;

  // Keeps at most `limit` bytes; what was given back longest ago goes first.
  explicit KeptBlocks(size_t limit) : limit_(limit) {}

  // A block of at least `bytes`, with undefined contents; null when there is no memory for it.
  Block take(size_t bytes);
  void give(Block block) noexcept;

  size_t bytes() const { return bytes_; }

 private:
  size_t limit_;
  size_t bytes_ = 0;
  std::vector<Block> blocks_;  // as they were given back
};

}  // namespace rlx
