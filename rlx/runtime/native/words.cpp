#include "words.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace rlx {

namespace {

constexpr size_t kWord = sizeof(int64_t);

}  // namespace

Words::Words(const Part& part)
    : where_("part '" + part.name + "'"), data_(part.data), size_(part.size / kWord) {
  if (part.size % kWord != 0) refuse(std::to_string(part.size) + " bytes", "whole words of 8");
}

void Words::refuse(const std::string& found, const std::string& expected) const {
  const std::string word = at_ == 0 ? "" : " at word " + std::to_string(at_ - 1);
  throw Error(where_ + word, found, expected, "the artifact was written wrongly; compile it again");
}

int64_t Words::next() {
  if (left() == 0) refuse("its end", "more words");
  int64_t value;
  std::memcpy(&value, data_ + kWord * at_++, sizeof value);
  return value;
}

size_t Words::below(size_t limit, const char* what) {
  const int64_t value = next();
  if (value < 0 || static_cast<uint64_t>(value) >= limit) {
    refuse(what + (" " + std::to_string(value)), "one below " + std::to_string(limit));
  }
  return static_cast<size_t>(value);
}

size_t Words::count(size_t words) {
  return below(left() == 0 ? 0 : (left() - 1) / words + 1, "count");
}

std::string Words::text() {
  const size_t bytes = below(left() == 0 ? 0 : kWord * (left() - 1) + 1, "length of a text");
  const std::byte* begin = data_ + kWord * at_;
  at_ += (bytes + kWord - 1) / kWord;
  if (std::any_of(begin + bytes, data_ + kWord * at_, [](std::byte b) { return b != std::byte{0}; })) {
    refuse("a text that is not padded with zeros", "zeros up to the next word");
  }
  return std::string(reinterpret_cast<const char*>(begin), bytes);
}

std::vector<int64_t> Words::list() {
  std::vector<int64_t> values(count());
  for (int64_t& value : values) value = next();
  return values;
}

void Words::end() const {
  if (left() != 0) refuse(std::to_string(left()) + " words behind the end", "none");
}

}  // namespace rlx
