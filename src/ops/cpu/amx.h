// AMX: leave to use the tiles, and their shapes. x86-64 Linux.
#pragma once

#include <cstdint>

namespace strata::cpu {

// Whether this machine has AMX for bytes and bf16 and the kernel lets this process use it (asked for once, for all threads).
bool amx_available();

// The 64 bytes that ldtilecfg reads.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void set(int tile, int tile_rows, int bytes) {
    rows[tile] = static_cast<std::uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<std::uint16_t>(bytes);
  }
};

}  // namespace strata::cpu
