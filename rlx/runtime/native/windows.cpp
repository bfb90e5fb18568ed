// What mapping.cpp and file.cpp are elsewhere: pages, files and stacks of Windows.
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <string>

#include "error.h"
#include "file.h"
#include "mapping.h"

namespace rlx {

namespace {

std::string last_error() { return "Windows' error " + std::to_string(GetLastError()); }

DWORD protection(Access access) {
  switch (access) {
    case Access::kCode:
      return PAGE_EXECUTE_READ;
    case Access::kReadOnly:
      return PAGE_READONLY;
    case Access::kReadWrite:
      return PAGE_READWRITE;
  }
  return PAGE_NOACCESS;
}

// Closes a handle at the end of its scope: a view needs neither its file nor its section open.
struct Handle {
  ~Handle() {
    if (value != nullptr && value != INVALID_HANDLE_VALUE) CloseHandle(value);
  }
  HANDLE value;
};

std::wstring wide(const std::string& path) {
  const int bytes = static_cast<int>(path.size());
  const int count = MultiByteToWideChar(CP_UTF8, 0, path.data(), bytes, nullptr, 0);
  std::wstring out(static_cast<size_t>(count), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, path.data(), bytes, out.data(), count);
  return out;
}

}  // namespace

size_t system_page_size() {
  SYSTEM_INFO facts;
  GetSystemInfo(&facts);
  return facts.dwPageSize;
}

// Windows takes pages of files back by itself.
void give_back_pages(const void*, size_t) {}

Mapping::Mapping(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* pages = VirtualAlloc(nullptr, bytes, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
  if (pages == nullptr) {
    throw Error("memory", last_error(), std::to_string(bytes) + " bytes of pages");
  }
  data_ = static_cast<std::byte*>(pages);
}

Mapping::~Mapping() {
  if (data_ != nullptr) VirtualFree(data_, 0, MEM_RELEASE);
}

// Large pages take a privilege that few processes have.
void Mapping::prefer_huge_pages() {}

void Mapping::seal(size_t offset, size_t bytes, Access access) {
  if (bytes == 0) return;
  DWORD before = 0;
  if (!VirtualProtect(data_ + offset, bytes, protection(access), &before)) {
    throw Error("memory", "VirtualProtect: " + last_error(),
                access == Access::kCode ? "executable pages" : "protected pages",
                "the system must let this process map code that it has compiled");
  }
  if (access == Access::kCode) FlushInstructionCache(GetCurrentProcess(), data_ + offset, bytes);
}

void reserve_stack() {
  // The compiler of this file has such a frame touch its pages in order.
  volatile char frame[size_t{64} << 10];
  frame[0] = 0;
}

MappedFile::MappedFile(const std::string& path) {
  const Handle file{CreateFileW(wide(path).c_str(), GENERIC_READ, FILE_SHARE_READ, nullptr,
                                OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr)};
  LARGE_INTEGER size = {};
  if (file.value == INVALID_HANDLE_VALUE || !GetFileSizeEx(file.value, &size)) {
    throw Error("'" + path + "'", last_error(), "a file to read");
  }
  size_ = static_cast<size_t>(size.QuadPart);
  if (size_ == 0) return;
  const Handle section{CreateFileMappingW(file.value, nullptr, PAGE_READONLY, 0, 0, nullptr)};
  void* pages =
      section.value == nullptr ? nullptr : MapViewOfFile(section.value, FILE_MAP_READ, 0, 0, 0);
  if (pages == nullptr) throw Error("'" + path + "'", last_error(), "memory to map it");
  data_ = static_cast<std::byte*>(pages);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) UnmapViewOfFile(data_);
}

}  // namespace rlx
