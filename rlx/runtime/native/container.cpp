#include "container.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "checksum.h"
#include "error.h"
#include "pool.h"

namespace rlx {

namespace {

constexpr char kMagic[8] = {'\x89', 'R', 'L', 'X', '\r', '\n', '\x1a', '\n'};

struct Header {
  char magic[8];
  uint32_t format, abi;
  uint64_t size;
  uint32_t parts, directory_size;
  uint64_t directory_checksum, reserved[2], checksum;
};
static_assert(sizeof(Header) == 64);

struct Entry {
  uint64_t offset, size, checksum;
  uint32_t name_size, reserved;
};
static_assert(sizeof(Entry) == 32);

constexpr uint64_t kLine = 64, kPage = 4096, kLarge = 65536;

const char* const kAgain = "copy or compile the artifact again";

[[noreturn]] void refuse(const std::string& where, const std::string& found,
                         const std::string& expected, const char* hint = kAgain) {
  throw Error(where, found, expected, hint);
}

std::string number(uint64_t value) { return std::to_string(value); }

// Large parts lie on pages, so that they can be mapped and given back alone.
uint64_t aligned(uint64_t offset, uint64_t size) {
  const uint64_t step = size >= kLarge ? kPage : kLine;
  return (offset + step - 1) / step * step;
}

// Letters, digits and _+-. between slashes, where nothing begins with a dot.
bool is_name(const std::string& text) {
  bool begins = true;
  for (const char c : text) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '+' || c == '-';
    if (!word && (begins || (c != '.' && c != '/'))) return false;
    begins = c == '/';
  }
  return !begins;
}

Header read_header(const std::byte* data, size_t size) {
  Header header{};
  if (size >= sizeof header) std::memcpy(&header, data, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    refuse("header", "a file of " + number(size) + " bytes that does not begin as one",
           "an RLX artifact", "");
  }
  // Before the checksum: another format may have another header.
  if (header.format != kArtifactFormat) {
    refuse("header", "format " + number(header.format), "format " + number(kArtifactFormat),
           header.format > kArtifactFormat ? "a newer RLX made the artifact; run it with that one"
                                           : "compile the artifact again with this version");
  }
  if (checksum(data, sizeof header - sizeof header.checksum) != header.checksum ||
      header.reserved[0] != 0 || header.reserved[1] != 0) {
    refuse("header", "damage: its checksum does not fit", "what was written");
  }
  if (header.abi < kOldestKernelAbi || header.abi > kKernelAbi) {
    refuse("header", "code for runtime ABI " + number(header.abi),
           "ABI " + number(kOldestKernelAbi) + " to " + number(kKernelAbi),
           "compile the artifact again with this version");
  }
  if (header.size != size) {
    refuse("file", number(size) + " bytes", number(header.size) + ", as its header says",
           size < header.size ? "the file is cut short; copy it again" : "something follows it");
  }
  if (header.directory_size > size - sizeof header ||
      uint64_t{header.parts} * sizeof(Entry) > header.directory_size) {
    refuse("header", number(header.parts) + " parts in a directory of " +
                         number(header.directory_size) + " bytes",
           "a directory that lies in the file and holds them");
  }
  if (checksum(data + sizeof header, header.directory_size) != header.directory_checksum) {
    refuse("directory", "damage: its checksum does not fit", "what was written");
  }
  return header;
}

}  // namespace

std::vector<Part> unpack(const void* file, size_t size) {
  const auto* data = static_cast<const std::byte*>(file);
  const Header header = read_header(data, size);
  const std::byte* entries = data + sizeof header;
  const std::byte* names = entries + header.parts * sizeof(Entry);
  const std::byte* names_end = entries + header.directory_size;
  std::vector<Part> parts;
  std::set<std::string> known;
  uint64_t end = sizeof header + header.directory_size;
  for (uint32_t i = 0; i < header.parts; ++i) {
    Entry entry;
    std::memcpy(&entry, entries + i * sizeof entry, sizeof entry);
    const std::string where = "directory entry " + number(i);
    if (entry.name_size > static_cast<size_t>(names_end - names) || entry.reserved != 0) {
      refuse(where, "a name of " + number(entry.name_size) + " bytes", "one in the directory");
    }
    std::string name(reinterpret_cast<const char*>(names), entry.name_size);
    names += entry.name_size;
    if (!is_name(name)) refuse(where, "'" + name + "'", "a name of a part");
    if (!known.insert(name).second) refuse(where, "a second part '" + name + "'", "one");
    const std::string part = "part '" + name + "'";
    // The layout leaves no choice, so nothing can overlap or hide.
    const uint64_t begin = aligned(end, entry.size);
    if (entry.offset != begin || begin > size || entry.size > size - begin) {
      refuse(part, number(entry.size) + " bytes at " + number(entry.offset),
             "a place at " + number(begin) + " and in the file of " + number(size) + " bytes");
    }
    if (std::any_of(data + end, data + begin, [](std::byte b) { return b != std::byte{0}; })) {
      refuse(part, "bytes before it that are not zero", "zeros");
    }
    if (checksum(data + begin, entry.size) != entry.checksum) {
      refuse(part, "damage: its " + number(entry.size) + " bytes do not fit their checksum",
             "what was written");
    }
    end = begin + entry.size;
    parts.push_back({std::move(name), data + begin, static_cast<size_t>(entry.size)});
  }
  if (names != names_end || end != size) {
    refuse("directory", "bytes that no part holds", "none but those of its parts");
  }
  return parts;
}

}  // namespace rlx
