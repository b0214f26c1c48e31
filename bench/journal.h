// The acknowledgement journal: which pages a server has acknowledged, so that all of them can be
// checked after it was killed. A file of a header and page numbers, 8 bytes each, in the order of
// their acknowledgement.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "zone/status.h"

namespace furrow::bench {

class AckJournal {
 public:
  struct Header {
    std::uint32_t page_bytes = 0;
    std::uint64_t salt = 0;
  };
  struct Contents {
    Header header;
    std::vector<std::uint64_t> pages;
  };

  // Makes a new journal, replacing one that is there.
  static Result<AckJournal> create(const std::string& path, const Header& header);
  // A last number that was not written whole is left out. Errors: not_found, foreign,
  // corrupt (its page size is none), io_error.
  static Result<Contents> read(const std::string& path);

  void append(std::uint64_t page);
  // What was appended is in the file. Reports the first error of any append.
  Status flush();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  explicit AckJournal(File file) : file_(std::move(file)) {}
  File file_;
};

}  // namespace furrow::bench
