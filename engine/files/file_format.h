// What a volume of kind fs keeps in its pages (log/FORMAT.md, "Files"), and its codec.
//
// Pages and their keys:
//   "furrow-fs"                       FilesSuper: one a volume
//   "slot" number (u32, big-endian)   FileRecord: a file or directory; group: its inode
//   inode, version, offset            a chunk of a file's bytes, from that offset on; group: its
//     (u64, u16, u48, big-endian)     inode
// Chunks that replace others have versions from 0xff00 on, and are found by the record alone.
// An inode is never used twice, a slot is. So one group tombstone deletes a file with all it had.
//
// Decoders take any bytes: corrupt, or unsupported (a newer version); they never allocate in
// proportion to an unchecked count. All pure; any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "log/key.h"
#include "zone/status.h"

namespace furrow {

constexpr std::size_t kFileNameMax = 255, kFileLinksMax = 65535;
constexpr std::uint64_t kRootInode = 1;
constexpr std::size_t kRecordedChunkBytes = 4 + 4 + 2;  // that a chunk takes of a file's record
constexpr std::uint64_t kFileBytesMax = (std::uint64_t{1} << 48) - 1;

// Since the volume was made; of a mount that was killed, what it wrote last is not counted.
struct FilesWritten {
  std::uint64_t appended_bytes = 0;   // to files, or written over what they had
  std::uint64_t device_bytes = 0;     // for that: pages, headers, padding, copies
  std::uint64_t relocated_bytes = 0;  // of these, by collection
  friend bool operator==(const FilesWritten&, const FilesWritten&) = default;
};

struct FilesSuper {
  std::uint64_t mount = 0;  // number of the latest mount; inodes begin with it
  std::uint32_t slots = 0;  // records have slots below it
  // Drawn by the latest mount: what it left staged, and nobody else. Two machines, or containers,
  // may have tried a mount of one number each. 0: of an older version, which had none.
  std::uint64_t token = 0;
  FilesWritten written = {};  // zeroes of an older version, which had none
  friend bool operator==(const FilesSuper&, const FilesSuper&) = default;
};

// A name of a file. Of two files that have the same one, the higher sequence has it.
struct FileLink {
  std::uint64_t parent = 0;  // inode
  std::uint64_t sequence = 0;
  std::string name;
  friend bool operator==(const FileLink&, const FileLink&) = default;
};

// Bytes of a file, behind those of the chunk before.
struct FileChunk {
  std::uint32_t length = 0;
  std::uint32_t checksum = 0;  // of the page
  std::uint16_t version = 0;   // in its key
  friend bool operator==(const FileChunk&, const FileChunk&) = default;
};

struct FileRecord {
  std::uint64_t inode = 0;
  bool directory = false;
  // More chunks, of `version`, may follow those listed: each begins where the one before ends, and
  // the first that is not there ends the file.
  bool open = false;
  bool durable = false;       // the device had all chunks that are listed when this was written
  std::uint16_t version = 0;  // of chunks to come
  std::uint64_t modified_s = 0;
  std::vector<FileLink> links;
  std::vector<FileChunk> chunks;
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

Key super_key();
Key slot_key(std::uint32_t slot);
Key chunk_key(std::uint64_t inode, std::uint16_t version, std::uint64_t offset);

// What a chunk's key says.
struct ChunkName {
  std::uint64_t inode = 0;
  std::uint16_t version = 0;
  std::uint64_t offset = 0;
  friend auto operator<=>(const ChunkName&, const ChunkName&) = default;
};
// The reverse; nothing: it is another page's key.
std::optional<std::uint32_t> slot_of(const Key& key);
std::optional<ChunkName> chunk_of(const Key& key);

std::vector<std::byte> encode(const FilesSuper& super);
Result<FilesSuper> decode_files_super(std::span<const std::byte> page);

// At most `bytes_max`: chunks that do not fit are left to be found (`open`). too_large: these are
// of several versions, or the names alone do not fit.
Result<std::vector<std::byte>> encode(const FileRecord& record, std::size_t bytes_max);
Result<FileRecord> decode_file_record(std::span<const std::byte> page);

}  // namespace furrow
