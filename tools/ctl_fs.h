// What the fs commands of furrowctl share: a volume of kind fs, opened as their flags say. All
// answer with an exit status, and report what is wrong.
#pragma once

#include <memory>
#include <string>

#include "engine/files/file_volume.h"
#include "tools/command.h"
#include "tools/command_line.h"

namespace furrow::tools {

using FilesToRead = std::shared_ptr<const FileVolume>;

int mount_files(const std::string& uri, std::shared_ptr<FileVolume>& volume);
// To look at, or to copy out of; with --rescue what is left of it.
int open_files(const std::string& uri, FilesToRead& volume);
// Of a command that did what it was asked: what was lost makes it a failure all the same.
int done(const FileVolume& volume, int status = kExitDone);

int fs_cat(const Arguments& arguments);
int fs_export(const Arguments& arguments);
int fs_import(const Arguments& arguments);

}  // namespace furrow::tools
