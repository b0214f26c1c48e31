// What a sparse file held: its bytes, in memory that holes in it take next to nothing of.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "zone/check.h"

namespace furrow::testing {

class FileImage {
 public:
  explicit FileImage(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat file = {};
    FURROW_CHECK(fd >= 0 && ::fstat(fd, &file) == 0);
    map(static_cast<std::size_t>(file.st_size));
    off_t at = 0;
    while ((at = ::lseek(fd, at, SEEK_DATA)) >= 0) {
      const off_t end = ::lseek(fd, at, SEEK_HOLE);
      FURROW_CHECK(end > at);
      while (at < end) {
        const ssize_t read = ::pread(fd, bytes_ + at, static_cast<std::size_t>(end - at), at);
        FURROW_CHECK(read > 0);
        at += read;
      }
    }
    FURROW_CHECK(errno == ENXIO);  // there is no more
    ::close(fd);
  }
  FileImage(const FileImage& other) {
    map(other.size_);
    other.for_each_piece([&](std::size_t at, std::string_view piece) {
      std::memcpy(bytes_ + at, piece.data(), piece.size());
    });
  }
  FileImage(FileImage&& other) noexcept
      : bytes_(std::exchange(other.bytes_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  FileImage& operator=(FileImage other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~FileImage() {
    if (bytes_ != nullptr) ::munmap(bytes_, size_);
  }

  std::size_t size() const { return size_; }
  char* data() { return bytes_; }
  char& operator[](std::size_t at) { return bytes_[at]; }
  std::string_view view() const { return {bytes_, size_}; }
  bool operator==(const FileImage& other) const { return view() == other.view(); }

  // In the place of what the file held, with holes for zeroes.
  void write(const std::string& path) const {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    for_each_piece([&](std::size_t at, std::string_view piece) {
      file.seekp(static_cast<std::streamoff>(at));
      file.write(piece.data(), static_cast<std::streamsize>(piece.size()));
    });
    file.close();
    FURROW_CHECK(file.good() && ::truncate(path.c_str(), static_cast<off_t>(size_)) == 0);
  }

 private:
  // Huge pages: of what is only read there is one, of zeroes, for 2 MiB at a time.
  void map(std::size_t size) {
    void* const memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FURROW_CHECK(memory != MAP_FAILED);
    (void)::madvise(memory, size, MADV_HUGEPAGE);  // as fast as it can be
    bytes_ = static_cast<char*>(memory);
    size_ = size;
  }
  // Those that are not all zeroes.
  template <typename Do>
  void for_each_piece(const Do& act) const {
    static const std::string zeroes(64 << 10, '\0');
    for (std::size_t at = 0; at < size_; at += zeroes.size()) {
      const std::string_view piece = view().substr(at, zeroes.size());
      if (std::memcmp(piece.data(), zeroes.data(), piece.size()) != 0) act(at, piece);
    }
  }

  char* bytes_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace furrow::testing
