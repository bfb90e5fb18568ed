#include "elf_loader.h"

#include <array>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "elf_format.h"
#include "error.h"

namespace rlx {

namespace {

// Keeps every distance inside an object within 32 bits, and a forged size from eating the memory.
constexpr uint64_t kMaxImage = uint64_t{1} << 30;

[[noreturn]] void refuse(const std::string& where, const std::string& found,
                         const std::string& expected) {
  throw Error("object: " + where, found, expected, "compile the object again");
}

std::string number(uint64_t value) { return std::to_string(value); }

// The bytes of the file; every read is checked.
class Bytes {
 public:
  Bytes(const void* data, size_t size) : data_(static_cast<const std::byte*>(data)), size_(size) {}

  const std::byte* range(const std::string& where, uint64_t offset, uint64_t bytes) const {
    if (offset > size_ || bytes > size_ - offset) {
      refuse(where, number(bytes) + " bytes at offset " + number(offset),
             "a place inside the file of " + number(size_) + " bytes");
    }
    return data_ + offset;
  }

  template <typename T>
  T read(const std::string& where, uint64_t offset) const {
    T value;
    std::memcpy(&value, range(where, offset, sizeof value), sizeof value);
    return value;
  }

 private:
  const std::byte* data_;
  size_t size_;
};

constexpr size_t kGroups = 3;  // code, read-only data, writable data: one Access each

Access group_of(const elf::Section& section) {
  if ((section.flags & elf::kExec) != 0) return Access::kCode;
  return (section.flags & elf::kWrite) != 0 ? Access::kReadWrite : Access::kReadOnly;
}

// Unwind tables and notes are for debuggers and exceptions; kernels throw none.
bool is_loaded(const elf::Section& section, const std::string& name) {
  return (section.flags & elf::kAlloc) != 0 && section.type != elf::kNote &&
         section.type != elf::kX86Unwind && name != ".eh_frame";
}

}  // namespace

// Loads one object; used once and thrown away.
class ElfLoader {
 public:
  ElfLoader(Bytes file, Machine machine)
      : file_(file), machine_(machine), page_(system_page_size()) {}

  std::shared_ptr<const ElfObject> load() {
    read_sections();
    read_symbol_table();
    lay_out();
    copy_sections();
    for (const elf::Section& table : sections_) apply_relocations(table);
    name_symbols();
    for (size_t group = 0; group < kGroups; ++group) {
      object_->mapping_.seal(group_start_[group], group_size_[group], static_cast<Access>(group));
    }
    return std::move(object_);
  }

 private:
  struct NamedSymbol : elf::Symbol {
    std::string text;
  };

  void check_header(const elf::Header& header) const;
  void read_sections();
  void check_loaded(const elf::Section& section, const std::string& name) const;
  std::string string_at(const std::string& where, uint32_t table, uint32_t offset) const;
  void read_symbol_table();
  uint64_t count_got_slots();
  void lay_out();
  void copy_sections();
  std::vector<elf::Rela> relocations_of(const elf::Section& table) const;
  void apply_relocations(const elf::Section& table);
  void apply(const elf::Section& target, size_t section, const elf::Rela& rela);
  uint64_t symbol_address(size_t index) const;
  uint64_t got_slot(size_t symbol);
  uint64_t value_symbol(const elf::Rela& rela);
  uint64_t upper_distance(const elf::Rela& lower);
  void find_uppers();
  void name_symbols();

  Bytes file_;
  Machine machine_;
  size_t page_;
  std::vector<elf::Section> sections_;
  std::vector<std::string> section_names_;
  std::vector<bool> loaded_;
  std::vector<uint64_t> section_offset_;  // in the image
  uint32_t symbol_table_ = 0;             // 0: the object has none
  std::vector<NamedSymbol> symbols_;
  std::array<uint64_t, kGroups> group_start_{}, group_size_{};
  uint64_t got_offset_ = 0;
  std::unordered_map<size_t, uint64_t> got_;  // symbol to its slot's offset in the image
  // Relocations by section and offset, once one is asked for that has a lower half.
  std::map<std::pair<uint64_t, uint64_t>, elf::Rela> uppers_;
  std::shared_ptr<ElfObject> object_;
};

void ElfLoader::check_header(const elf::Header& header) const {
  if (std::memcmp(header.ident, "\177ELF", 4) != 0) refuse("header", "no ELF magic", "an ELF file");
  if (header.ident[4] != elf::kClass64 || header.ident[5] != elf::kLittleEndian) {
    refuse("header", "class " + number(header.ident[4]) + ", byte order " + number(header.ident[5]),
           "a 64-bit little-endian file");
  }
  if (header.type != elf::kRelocatable) {
    refuse("header", "file type " + number(header.type), "a relocatable object (1)");
  }
  if (header.machine != static_cast<uint16_t>(machine_)) {
    throw Error(
        "object: header", "machine number " + number(header.machine),
        std::string(machine_name(machine_)) + " (" + number(static_cast<uint16_t>(machine_)) + ")",
        "compile the object for the machine that runs it");
  }
  if (header.shentsize != sizeof(elf::Section) || header.shnum == 0 ||
      header.shstrndx >= header.shnum) {
    refuse("header",
           number(header.shnum) + " sections of " + number(header.shentsize) +
               " bytes, names in section " + number(header.shstrndx),
           "at least one section of 64 bytes, and names in one of them");
  }
}

void ElfLoader::read_sections() {
  const auto header = file_.read<elf::Header>("header", 0);
  check_header(header);
  file_.range("section headers", header.shoff, uint64_t{header.shnum} * sizeof(elf::Section));
  for (uint64_t i = 0; i < header.shnum; ++i) {
    sections_.push_back(
        file_.read<elf::Section>("section headers", header.shoff + i * sizeof(elf::Section)));
  }
  for (const elf::Section& section : sections_) {
    section_names_.push_back(string_at("section names", header.shstrndx, section.name));
    loaded_.push_back(is_loaded(section, section_names_.back()));
    if (loaded_.back()) check_loaded(section, section_names_.back());
  }
  section_offset_.resize(sections_.size());
}

void ElfLoader::check_loaded(const elf::Section& section, const std::string& name) const {
  const std::string where = "section '" + name + "'";
  if (section.type != elf::kProgBits && section.type != elf::kNoBits) {
    refuse(where, "section type " + number(section.type),
           "plain contents: kernels have no constructors and no dynamic linking");
  }
  if ((section.flags & (elf::kTls | elf::kCompressed)) != 0) {
    refuse(where, "flags " + number(section.flags), "no thread-local and no compressed contents");
  }
  if ((section.flags & elf::kExec) != 0 && (section.flags & elf::kWrite) != 0) {
    refuse(where, "writable code", "code or writable data");
  }
  const uint64_t align = section.addralign;
  if ((align & (align - 1)) != 0 || align > page_) {
    refuse(where, "alignment " + number(align), "a power of two of at most " + number(page_));
  }
  if (section.size > kMaxImage) {
    refuse(where, number(section.size) + " bytes", "at most " + number(kMaxImage));
  }
  if (section.type == elf::kProgBits) file_.range(where, section.offset, section.size);
}

std::string ElfLoader::string_at(const std::string& where, uint32_t table, uint32_t offset) const {
  if (table >= sections_.size() || sections_[table].type != elf::kStrTab) {
    refuse(where, "section " + number(table), "a string table");
  }
  const elf::Section& strings = sections_[table];
  const std::byte* begin = file_.range(where, strings.offset, strings.size);
  if (offset >= strings.size) {
    refuse(where, "string at " + number(offset), "below " + number(strings.size));
  }
  const std::byte* text = begin + offset;
  const void* end = std::memchr(text, 0, strings.size - offset);
  if (end == nullptr) refuse(where, "a string without an end", "one that ends in its table");
  return std::string(reinterpret_cast<const char*>(text), static_cast<const char*>(end));
}

void ElfLoader::read_symbol_table() {
  for (uint32_t i = 0; i < sections_.size(); ++i) {
    if (sections_[i].type != elf::kSymTab) continue;
    if (symbol_table_ != 0) refuse("symbols", "two symbol tables", "one");
    symbol_table_ = i;
  }
  if (symbol_table_ == 0) return;
  const elf::Section& table = sections_[symbol_table_];
  if (table.entsize != sizeof(elf::Symbol)) {
    refuse("symbols", "entries of " + number(table.entsize) + " bytes", "24");
  }
  file_.range("symbols", table.offset, table.size);
  for (uint64_t at = 0; at + sizeof(elf::Symbol) <= table.size; at += sizeof(elf::Symbol)) {
    NamedSymbol symbol{file_.read<elf::Symbol>("symbols", table.offset + at), ""};
    symbol.text = string_at("symbol names", table.link, symbol.name);
    symbols_.push_back(std::move(symbol));
  }
}

std::vector<elf::Rela> ElfLoader::relocations_of(const elf::Section& table) const {
  const bool relocates = table.type == elf::kRelaTable || table.type == elf::kRelTable;
  if (!relocates || table.info >= sections_.size() || !loaded_[table.info]) return {};
  const std::string where = "relocations of section '" + section_names_[table.info] + "'";
  if (table.type == elf::kRelTable || table.entsize != sizeof(elf::Rela)) {
    refuse(where, "entries of " + number(table.entsize) + " bytes", "24, with an addend");
  }
  if (table.link != symbol_table_ || symbol_table_ == 0) {
    refuse(where, "symbols from section " + number(table.link), "the symbol table");
  }
  file_.range(where, table.offset, table.size);
  std::vector<elf::Rela> relas;
  for (uint64_t at = 0; at + sizeof(elf::Rela) <= table.size; at += sizeof(elf::Rela)) {
    relas.push_back(file_.read<elf::Rela>(where, table.offset + at));
  }
  return relas;
}

// An upper bound: symbols that are named twice share a slot.
uint64_t ElfLoader::count_got_slots() {
  uint64_t slots = 0;
  for (const elf::Section& table : sections_) {
    for (const elf::Rela& rela : relocations_of(table)) {
      slots += relocation_uses_got(machine_, rela.type()) ? 1 : 0;
    }
  }
  return slots;
}

// Places the groups one after another, each from a page of its own, and maps the image.
void ElfLoader::lay_out() {
  const uint64_t got_bytes = count_got_slots() * sizeof(uint64_t);
  uint64_t at = 0;
  const auto align = [&at](uint64_t to) { at = (at + to - 1) / to * to; };
  for (size_t group = 0; group < kGroups; ++group) {
    align(page_);
    group_start_[group] = at;
    for (size_t i = 0; i < sections_.size(); ++i) {
      const elf::Section& section = sections_[i];
      if (!loaded_[i] || static_cast<size_t>(group_of(section)) != group) continue;
      if (section.addralign > 1) align(section.addralign);
      section_offset_[i] = at;
      at += section.size;
      if (at > kMaxImage) refuse("sections", "more than 1 GiB in all", "less");
    }
    if (static_cast<Access>(group) == Access::kReadOnly) {
      align(sizeof(uint64_t));
      got_offset_ = at;
      at += got_bytes;
    }
    align(page_);
    group_size_[group] = at - group_start_[group];
  }
  object_ = std::shared_ptr<ElfObject>(new ElfObject(at));
  object_->code_bytes_ = group_size_[static_cast<size_t>(Access::kCode)];
}

void ElfLoader::copy_sections() {
  for (size_t i = 0; i < sections_.size(); ++i) {
    const elf::Section& section = sections_[i];
    if (!loaded_[i] || section.type == elf::kNoBits || section.size == 0) continue;
    std::memcpy(object_->mapping_.data() + section_offset_[i],
                file_.range(section_names_[i], section.offset, section.size), section.size);
  }
}

uint64_t ElfLoader::symbol_address(size_t index) const {
  if (index >= symbols_.size()) {
    refuse("relocation", "symbol " + number(index), "below " + number(symbols_.size()));
  }
  const NamedSymbol& symbol = symbols_[index];
  const std::string where = "symbol '" + symbol.text + "'";
  if (symbol.shndx == elf::kAbsolute) return symbol.value;
  if (symbol.shndx == elf::kUndefined) {
    throw Error("object: " + where, "no definition", "one in the object itself",
                "kernels call nothing outside their object, the C library included");
  }
  if (symbol.shndx >= sections_.size() || !loaded_[symbol.shndx]) {
    refuse(where, "section " + number(symbol.shndx), "a section that is loaded");
  }
  if (symbol.type() == elf::kTlsSymbol || symbol.type() == elf::kIndirectFunction) {
    refuse(where, "symbol type " + number(symbol.type()), "a plain function or object");
  }
  if (symbol.value > sections_[symbol.shndx].size) {
    refuse(where, "offset " + number(symbol.value),
           "at most its section's size " + number(sections_[symbol.shndx].size));
  }
  return reinterpret_cast<uint64_t>(object_->mapping_.data()) + section_offset_[symbol.shndx] +
         symbol.value;
}

uint64_t ElfLoader::got_slot(size_t symbol) {
  const uint64_t next = got_offset_ + got_.size() * sizeof(uint64_t);
  const auto [slot, fresh] = got_.try_emplace(symbol, next);
  std::byte* place = object_->mapping_.data() + slot->second;
  if (fresh) {
    const uint64_t address = symbol_address(symbol);
    std::memcpy(place, &address, sizeof address);
  }
  return reinterpret_cast<uint64_t>(place);
}

void ElfLoader::apply_relocations(const elf::Section& table) {
  for (const elf::Rela& rela : relocations_of(table))
    apply(sections_[table.info], table.info, rela);
}

void ElfLoader::apply(const elf::Section& target, size_t section, const elf::Rela& rela) {
  const uint32_t type = rela.type();
  const std::string where = "relocation of type " + number(type) + " at offset " +
                            number(rela.offset) + " of section '" + section_names_[section] + "'";
  const int width = relocation_width(machine_, type);
  if (width == 0) return;
  if (width < 0) {
    refuse(where, "an unknown type",
           "one of position-independent " + std::string(machine_name(machine_)) + " code");
  }
  const auto bytes = static_cast<uint64_t>(width);
  if (rela.offset > target.size || bytes > target.size - rela.offset) {
    refuse(where, "a place outside", "one inside the " + number(target.size) + " bytes");
  }
  const uint64_t s =
      relocation_is_lower_half(machine_, type) ? upper_distance(rela) : value_symbol(rela);
  std::byte* place = object_->mapping_.data() + section_offset_[section] + rela.offset;
  const auto p = reinterpret_cast<uint64_t>(place);
  switch (relocate(machine_, type, place, p, s, rela.addend)) {
    case Relocated::kDone:
      return;
    case Relocated::kUnknownType:
      refuse(where, "an unknown type", "a known one");
    case Relocated::kOverflow:
      refuse(where, "a value that does not fit (symbol '" + symbols_[rela.symbol()].text + "')",
             "a distance within the field: build with -fPIC and the small code model");
    case Relocated::kMisaligned:
      refuse(where, "a misaligned symbol '" + symbols_[rela.symbol()].text + "'",
             "one aligned to what the instruction addresses");
  }
}

// What a relocation addresses: its symbol, or the slot that holds the symbol's address.
uint64_t ElfLoader::value_symbol(const elf::Rela& rela) {
  const bool got = relocation_uses_got(machine_, rela.type());
  return got ? got_slot(rela.symbol()) : symbol_address(rela.symbol());
}

// The distance of which `lower` stores the lower half: from the place of the instruction that its
// symbol labels to what the relocation there addresses.
uint64_t ElfLoader::upper_distance(const elf::Rela& lower) {
  const uint64_t place = symbol_address(lower.symbol());
  const NamedSymbol& label = symbols_[lower.symbol()];
  if (uppers_.empty()) find_uppers();
  const auto found = uppers_.find({label.shndx, label.value});
  if (found == uppers_.end()) {
    refuse("relocation of a lower half", "no upper half at '" + label.text + "'", "one");
  }
  return value_symbol(found->second) + static_cast<uint64_t>(found->second.addend) - place;
}

void ElfLoader::find_uppers() {
  for (const elf::Section& table : sections_) {
    for (const elf::Rela& rela : relocations_of(table)) {
      if (relocation_width(machine_, rela.type()) <= 0) continue;
      if (relocation_is_lower_half(machine_, rela.type())) continue;
      uppers_.emplace(std::pair<uint64_t, uint64_t>(table.info, rela.offset), rela);
    }
  }
}

void ElfLoader::name_symbols() {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const NamedSymbol& symbol = symbols_[i];
    const bool global = symbol.bind() == elf::kGlobal || symbol.bind() == elf::kWeak;
    const bool here = symbol.shndx < sections_.size() && loaded_[symbol.shndx];
    if (!global || !here || symbol.shndx == elf::kUndefined || symbol.text.empty()) continue;
    const auto* address = reinterpret_cast<const std::byte*>(symbol_address(i));
    if (!object_->symbols_.emplace(symbol.text, address).second) {
      refuse("symbol '" + symbol.text + "'", "two definitions", "one");
    }
  }
}

std::shared_ptr<const ElfObject> ElfObject::load(const void* data, size_t size, Machine machine) {
  return ElfLoader(Bytes(data, size), machine).load();
}

const std::byte* ElfObject::symbol(const std::string& name) const {
  const auto found = symbols_.find(name);
  if (found != symbols_.end()) return found->second;
  std::string names;
  for (const auto& [known, address] : symbols_)
    names += (names.empty() ? "'" : ", '") + known + "'";
  throw Error("object", "no symbol '" + name + "'", "one of " + (names.empty() ? "none" : names));
}

bool ElfObject::contains_code(uintptr_t address) const {
  const auto begin = reinterpret_cast<uintptr_t>(mapping_.data());
  return address >= begin && address - begin < code_bytes_;
}

}  // namespace rlx
