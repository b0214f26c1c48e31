// The two superblocks of an emulated device in its file. Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "zone/emu_file.h"
#include "zone/emu_layout.h"

namespace furrow::emu {

// The second one is for a damaged first one; when neither is good, the first says why. Errors as
// decode(), and io_error.
Result<Superblock> read_superblocks(const EmuFile& file);

// Where those begin (bytes) that are damaged, cannot be read, or are not what the first whole one
// is: the two are the same.
std::vector<std::uint64_t> damaged_superblocks(const EmuFile& file);

// Writes the one that begins at `damaged` anew, durably, from the other one as that stands: a newer
// program's may have fields that this one does not know. Nothing else is written, so whatever a
// power cut leaves of it, the other one counts. Errors: those of the other one; io_error, no_space.
Status mend_superblock(const EmuFile& file, std::uint64_t damaged);

}  // namespace furrow::emu
