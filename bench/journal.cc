#include "bench/journal.h"

#include <cerrno>
#include <utility>

#include "log/format.h"

namespace furrow::bench {

namespace {

constexpr std::uint64_t kMagic = 0x314b434157525546;  // "FURWACK1"

struct Preamble {
  std::uint64_t magic;
  std::uint64_t page_bytes;
  std::uint64_t salt;
};

Status io_error(const char* hint) { return {Code::io_error, Origin::tool, hint, errno}; }

}  // namespace

Result<AckJournal> AckJournal::create(const std::string& path, const Header& header) {
  AckJournal journal(File(std::fopen(path.c_str(), "wb")));
  if (!journal.file_) return io_error("cannot make the journal");
  const Preamble preamble{kMagic, header.page_bytes, header.salt};
  std::fwrite(&preamble, sizeof preamble, 1, journal.file_.get());
  const Status written = journal.flush();
  if (!written.ok()) return written;
  return journal;
}

Result<AckJournal::Contents> AckJournal::read(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) return Status(Code::not_found, Origin::tool, "cannot open the journal", errno);
  Preamble preamble{};
  if (std::fread(&preamble, sizeof preamble, 1, file.get()) != 1 || preamble.magic != kMagic) {
    return Status(Code::foreign, Origin::tool, "not a journal of furrow-bench");
  }
  if (preamble.page_bytes == 0 || preamble.page_bytes > kValueBytesMax) {
    return Status(Code::corrupt, Origin::tool,
                  "the journal's size of a page is none: replay anew to make another journal");
  }
  Contents contents{{static_cast<std::uint32_t>(preamble.page_bytes), preamble.salt}, {}};
  std::uint64_t page = 0;
  while (std::fread(&page, sizeof page, 1, file.get()) == 1) contents.pages.push_back(page);
  if (std::ferror(file.get()) != 0) return io_error("cannot read the journal");
  return contents;
}

void AckJournal::append(std::uint64_t page) {
  std::fwrite(&page, sizeof page, 1, file_.get());  // an error stays with the file, for flush()
}

Status AckJournal::flush() {
  if (std::fflush(file_.get()) != 0 || std::ferror(file_.get()) != 0) {
    return io_error("cannot write the journal");
  }
  return {};
}

}  // namespace furrow::bench
