// Establishes that no bytes make the decoders of what files keep in pages misbehave: the first page
// and the record of a file. What they accept is in range, takes no more memory than its page says,
// and comes back from another encoding, also from a shorter one, which leaves out a file's last
// parts and nothing else. These pages have no checksum of their own (the log has one of each page);
// made right instead are the magic numbers and, in half of the inputs, the counts.
#include "engine/files/file_format.h"
#include "tests/fuzz/media_fuzz.h"
#include "tests/fuzz/valid_structures.h"

using namespace furrow;

namespace {

// Of the encoding (log/FORMAT.md, "Files").
constexpr std::size_t kMagicBytes = 8 + 4;  // with the version
constexpr std::size_t kLinksAt = 34, kChunksAt = 36, kHeadBytes = 40;
constexpr std::size_t kLinkHeadBytes = 18, kNameBytesAt = 16, kChunkBytes = 10;

void put_magic_of(const fuzz::Bytes& structure, fuzz::Bytes& bytes) {
  std::copy_n(structure.begin(), std::min(bytes.size(), kMagicBytes), bytes.begin());
}

// As many links as are whole, and behind them as many chunks as there is room for.
void mend_counts(fuzz::Bytes& bytes) {
  if (bytes.size() < kHeadBytes) return;
  const auto links_max = load_le<std::uint16_t>(bytes.data() + kLinksAt);
  std::uint16_t links = 0;
  std::size_t at = kHeadBytes;
  for (; links < links_max && bytes.size() - at >= kLinkHeadBytes; ++links) {
    const std::size_t name = load_le<std::uint16_t>(bytes.data() + at + kNameBytesAt);
    if (bytes.size() - at - kLinkHeadBytes < name) break;
    at += kLinkHeadBytes + name;
  }
  store_le(bytes.data() + kLinksAt, links);
  store_le(bytes.data() + kChunksAt, static_cast<std::uint32_t>((bytes.size() - at) / kChunkBytes));
}

void require_in_range(const FileRecord& record, std::size_t page_bytes) {
  fuzz::require(record.inode != 0, "a file has an inode");
  std::size_t bytes = kHeadBytes + record.chunks.size() * kChunkBytes;
  for (const FileLink& link : record.links) bytes += kLinkHeadBytes + link.name.size();
  fuzz::require(bytes <= page_bytes, "a record is no larger than its page");
  std::uint64_t file_bytes = 0;
  for (const FileChunk& chunk : record.chunks) {
    fuzz::require(chunk.length != 0, "a part of a file is not empty");
    file_bytes += chunk.length;
  }
  fuzz::require(file_bytes <= kFileBytesMax, "offsets of a file fit into its chunks' keys");
}

void require_round_trips(const FileRecord& record, std::size_t page_bytes) {
  const auto again = encode(record, page_bytes);
  fuzz::require(again.ok(), "what a page had fits into one of its size");
  const auto second = decode_file_record(*again);
  fuzz::require(second.ok() && *second == record, "round trip");
  const std::size_t shorter = again->size() / 2;
  const auto part = encode(record, shorter);
  if (!part.ok()) return;
  fuzz::require(part->size() <= shorter, "no longer than was asked for");
  const auto rest = decode_file_record(*part);
  fuzz::require(rest.ok() && rest->open && rest->chunks.size() < record.chunks.size(),
                "what was left out is to be found");
  FileRecord expected = record;
  expected.open = true;
  expected.chunks.resize(rest->chunks.size());
  fuzz::require(*rest == expected, "only the last parts are left out");
}

void try_record(const fuzz::Bytes& bytes) {
  const auto record = decode_file_record(bytes);
  if (!record.ok()) return;
  require_in_range(*record, bytes.size());
  require_round_trips(*record, bytes.size());
}

void try_super(const fuzz::Bytes& bytes) {
  const auto super = decode_files_super(bytes);
  if (!super.ok()) return;
  const fuzz::Bytes again = encode(*super);
  // Older ones end before what was written, or before the token as well.
  const std::size_t uncounted = again.size() - sizeof super->written;
  fuzz::require(bytes.size() >= uncounted - sizeof super->token,
                "a first page has all but perhaps its token and counts");
  fuzz::require(bytes.size() >= uncounted || super->token == 0, "a token is whole");
  fuzz::require(bytes.size() >= again.size() || super->written == FilesWritten(),
                "what was written is told whole");
  const auto second = decode_files_super(again);
  fuzz::require(second.ok() && *second == *super, "round trip");
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  return fuzz::mutate(data, size, size_max, seed, [](RandomStructures& random) {
    return random.below(8) == 0 ? fuzz::valid_first_page(random) : fuzz::valid_file_record(random);
  });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Bytes kSuper = encode(FilesSuper{});
  static const fuzz::Bytes kRecord = *encode(FileRecord{}, kHeadBytes);
  fuzz::Bytes bytes = fuzz::copy_of(data, size);
  try_super(bytes);
  try_record(bytes);
  put_magic_of(kSuper, bytes);
  try_super(bytes);
  fuzz::require(!decode_file_record(bytes).ok(), "a first page is no record");
  put_magic_of(kRecord, bytes);
  try_record(bytes);
  fuzz::require(!decode_files_super(bytes).ok(), "a record is no first page");
  mend_counts(bytes);
  try_record(bytes);
  return 0;
}
