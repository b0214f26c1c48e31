// The pool of a running furrowd, by its admin listener (--server, --token_file).
#pragma once

#include <string>

#include "engine/pool.h"

namespace furrow::tools {

bool server_asked();  // --server is given

// Each prints what furrowctl's command prints, or reports what is wrong, and returns the exit
// status.
int pool_info_of_server();
int zones_of_server();
int create_on_server(const VolumeOptions& options);
int list_on_server();
int resize_on_server(const std::string& name, const ResizeOptions& options);
int delete_on_server(const std::string& name);

}  // namespace furrow::tools
