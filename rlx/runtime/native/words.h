// Reads the structured parts of an artifact: rows of 64-bit words. Nothing in them is trusted:
// every count is held against the words that are left before anything is made of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "container.h"

namespace rlx {

class Words {
 public:
  // Throws Error, as every method does, that names the part.
  explicit Words(const Part& part);

  // Throws Error: what was found at the last word that was read, and what was expected.
  [[noreturn]] void refuse(const std::string& found, const std::string& expected) const;

  int64_t next();
  // A number from 0 up to, and not including, `limit`.
  size_t below(size_t limit, const char* what);
  // A number of items, each of at least so many words.
  size_t count(size_t words = 1);
  // The length in bytes, then as many, padded with zeros to whole words.
  std::string text();
  std::vector<int64_t> list();
  // A number of words that belong together; `end_block` takes what this returns, where they end.
  size_t begin_block();
  // The words of the block that comes next, which stays unread.
  Part block_ahead();
  void end_block(size_t end) const;
  void end() const;

 private:
  size_t left() const { return size_ - at_; }

  std::string name_, where_;
  const std::byte* data_;
  size_t size_, at_ = 0;  // words
};

}  // namespace rlx
