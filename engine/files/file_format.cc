#include "engine/files/file_format.h"

#include <algorithm>
#include <array>

#include "log/codec.h"

namespace furrow {

namespace {

constexpr std::uint64_t kSuperMagic = 0x5355'5346'5752'5246;   // "FRRWFSUS"
constexpr std::uint64_t kRecordMagic = 0x4345'5246'5752'5246;  // "FRRWFREC"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kDirectoryFlag = 1, kOpenFlag = 2, kDurableFlag = 4;
constexpr std::size_t kSuperBytesBefore = 8 + 4 + 4 + 8;  // there was a token
constexpr std::size_t kSuperBytesUncounted = kSuperBytesBefore + 8;
constexpr std::size_t kRecordHeadBytes = 8 + 4 + 4 + 8 + 8 + 2 + 2 + 4;
constexpr std::size_t kLinkHeadBytes = 8 + 8 + 2;

Status damaged(const char* hint) { return {Code::corrupt, Origin::engine, hint}; }

template <std::size_t N>
void store_be(std::array<std::byte, Key::kBytesMax>& to, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < N; ++i) to[at + i] = static_cast<std::byte>(value >> 8 * (N - 1 - i));
}

template <std::size_t N>
std::uint64_t load_be(const std::array<std::byte, Key::kBytesMax>& from, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < N; ++i)
    value = value << 8 | std::to_integer<std::uint8_t>(from[at + i]);
  return value;
}

Status check_head(ByteReader& reader, std::uint64_t magic) {
  if (reader.take<std::uint64_t>() != magic)
    return damaged("a page of the files is none of theirs");
  if (reader.take<std::uint32_t>() > kVersion) {
    return {Code::unsupported, Origin::engine, "the files were written by a newer version"};
  }
  return {};
}

// No path can lead to another one, and one with a / in it could lead a copy out of its directory.
bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kFileNameMax && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos;
}

}  // namespace

Key super_key() { return Key::from(std::string_view("furrow-fs")); }

Key slot_key(std::uint32_t slot) {
  Key key = Key::from(std::string_view("slot...."));
  store_be<4>(key.bytes, 4, slot);
  return key;
}

Key chunk_key(std::uint64_t inode, std::uint16_t version, std::uint64_t offset) {
  Key key;
  key.length = 16;
  store_be<8>(key.bytes, 0, inode);
  store_be<2>(key.bytes, 8, version);
  store_be<6>(key.bytes, 10, offset);
  return key;
}

std::optional<std::uint32_t> slot_of(const Key& key) {
  const auto slot = static_cast<std::uint32_t>(load_be<4>(key.bytes, 4));
  if (key != slot_key(slot)) return std::nullopt;
  return slot;
}

std::optional<ChunkName> chunk_of(const Key& key) {
  if (key.length != 16) return std::nullopt;
  return ChunkName{load_be<8>(key.bytes, 0), static_cast<std::uint16_t>(load_be<2>(key.bytes, 8)),
                   load_be<6>(key.bytes, 10)};
}

std::vector<std::byte> encode(const FilesSuper& super) {
  std::vector<std::byte> page(kSuperBytesUncounted + 3 * 8);
  ByteWriter writer(page);
  writer.put(kSuperMagic);
  writer.put(kVersion);
  writer.put(super.slots);
  writer.put(super.mount);
  writer.put(super.token);
  writer.put(super.written.appended_bytes);
  writer.put(super.written.device_bytes);
  writer.put(super.written.relocated_bytes);
  return page;
}

Result<FilesSuper> decode_files_super(std::span<const std::byte> page) {
  ByteReader reader(page);
  const Status head = check_head(reader, kSuperMagic);
  if (!head.ok()) return head;
  FilesSuper super;
  super.slots = reader.take<std::uint32_t>();
  super.mount = reader.take<std::uint64_t>();
  if (page.size() > kSuperBytesBefore) super.token = reader.take<std::uint64_t>();
  if (page.size() > kSuperBytesUncounted) {
    super.written.appended_bytes = reader.take<std::uint64_t>();
    super.written.device_bytes = reader.take<std::uint64_t>();
    super.written.relocated_bytes = reader.take<std::uint64_t>();
  }
  if (!reader.ok()) return damaged("the files' first page is cut off");
  return super;
}

Result<std::vector<std::byte>> encode(const FileRecord& record, std::size_t bytes_max) {
  constexpr Status kTooLarge = {Code::too_large, Origin::engine,
                                "a file has too many names or parts for its record; copy it"};
  std::size_t bytes = kRecordHeadBytes;
  for (const FileLink& link : record.links) bytes += kLinkHeadBytes + link.name.size();
  if (bytes > bytes_max || record.links.size() > kFileLinksMax) return kTooLarge;
  const std::size_t chunks =
      std::min(record.chunks.size(), (bytes_max - bytes) / kRecordedChunkBytes);
  const auto left_out = std::span(record.chunks).subspan(chunks);
  const auto other = [&](const FileChunk& chunk) { return chunk.version != record.version; };
  if (std::ranges::any_of(left_out, other)) return kTooLarge;
  std::vector<std::byte> page(bytes + chunks * kRecordedChunkBytes);
  ByteWriter writer(page);
  writer.put(kRecordMagic);
  writer.put(kVersion);
  const bool open = record.open || !left_out.empty();
  writer.put((record.directory ? kDirectoryFlag : 0) | (open ? kOpenFlag : 0) |
             (record.durable ? kDurableFlag : 0));
  writer.put(record.inode);
  writer.put(record.modified_s);
  writer.put(record.version);
  writer.put(static_cast<std::uint16_t>(record.links.size()));
  writer.put(static_cast<std::uint32_t>(chunks));
  for (const FileLink& link : record.links) {
    writer.put(link.parent);
    writer.put(link.sequence);
    writer.put(static_cast<std::uint16_t>(link.name.size()));
    writer.put_bytes(std::as_bytes(std::span(link.name)));
  }
  for (const FileChunk& chunk : std::span(record.chunks).first(chunks)) {
    writer.put(chunk.length);
    writer.put(chunk.checksum);
    writer.put(chunk.version);
  }
  return page;
}

Result<FileRecord> decode_file_record(std::span<const std::byte> page) {
  ByteReader reader(page);
  const Status head = check_head(reader, kRecordMagic);
  if (!head.ok()) return head;
  const auto flags = reader.take<std::uint32_t>();
  FileRecord record;
  record.directory = (flags & kDirectoryFlag) != 0;
  record.open = (flags & kOpenFlag) != 0;
  record.durable = (flags & kDurableFlag) != 0;
  record.inode = reader.take<std::uint64_t>();
  record.modified_s = reader.take<std::uint64_t>();
  record.version = reader.take<std::uint16_t>();
  const auto links = reader.take<std::uint16_t>();
  const auto chunks = reader.take<std::uint32_t>();
  for (unsigned i = 0; i < links && reader.ok(); ++i) {
    FileLink link;
    link.parent = reader.take<std::uint64_t>();
    link.sequence = reader.take<std::uint64_t>();
    const auto name = reader.take_bytes(reader.take<std::uint16_t>());
    link.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    if (reader.ok() && !is_name(link.name)) return damaged("a file's record names no name");
    record.links.push_back(std::move(link));
  }
  std::uint64_t file_bytes = 0;
  for (std::uint32_t i = 0; i < chunks && reader.ok(); ++i) {
    FileChunk chunk;
    chunk.length = reader.take<std::uint32_t>();
    chunk.checksum = reader.take<std::uint32_t>();
    chunk.version = reader.take<std::uint16_t>();
    if (chunk.length == 0) return damaged("a file's record names an empty part");
    file_bytes += chunk.length;
    record.chunks.push_back(chunk);
  }
  if (!reader.ok() || record.inode == 0) return damaged("a file's record is cut off");
  if (file_bytes > kFileBytesMax) return damaged("a file's record names too many bytes");
  return record;
}

}  // namespace furrow
