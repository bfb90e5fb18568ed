#include "words.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace rlx {

namespace {

constexpr size_t kWord = sizeof(int64_t);

// The bytes of the character of UTF-8 at `text`, of which `left` are there; 0 if it is none, or the
// character 0, which would end the text for C.
size_t character(const unsigned char* text, size_t left) {
  const unsigned char first = text[0];
  if (first < 0x80) return first == 0 ? 0 : 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || size > left) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  // Each number has one form, and there are no surrogates and nothing above 0x10ffff.
  const unsigned char second = text[1];
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
  return size;
}

bool is_utf8(const std::string& text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  for (size_t at = 0; at < text.size();) {
    const size_t size = character(bytes + at, text.size() - at);
    if (size == 0) return false;
    at += size;
  }
  return true;
}

}  // namespace

Words::Words(const Part& part)
    : name_(part.name), where_("part '" + part.name + "'"), data_(part.data), size_(part.size / kWord) {
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
  const auto is_set = [](std::byte b) { return b != std::byte{0}; };
  if (std::any_of(begin + bytes, data_ + kWord * at_, is_set)) {
    refuse("a text that is not padded with zeros", "zeros up to the next word");
  }
  std::string text(reinterpret_cast<const char*>(begin), bytes);
  if (!is_utf8(text)) refuse("a text that is no UTF-8", "UTF-8 without zeros");
  return text;
}

std::vector<int64_t> Words::list() {
  std::vector<int64_t> values(count());
  for (int64_t& value : values) value = next();
  return values;
}

size_t Words::begin_block() {
  const size_t size = count();
  return at_ + size;
}

Part Words::block_ahead() {
  const size_t start = at_, size = count();
  Part block{name_, data_ + kWord * at_, kWord * size};
  at_ = start;
  return block;
}

void Words::end_block(size_t end) const {
  if (at_ != end) refuse("a block that does not end here", "one as long as it says");
}

void Words::end() const {
  if (left() != 0) refuse(std::to_string(left()) + " words behind the end", "none");
}

}  // namespace rlx
