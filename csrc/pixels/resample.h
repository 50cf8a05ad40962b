// Pillow's 8-bit bicubic resize, bit for bit (its Resample.c; 11 <= Pillow < 12.2).
//
// Weights are normalised in double and then rounded to 22-bit integers; the horizontal pass comes first; each pass
// rounds and clamps to uint8. A pass whose size does not change is skipped.
#pragma once

#include <cstdint>
#include <vector>

namespace ser_fast::pixels {

constexpr int kChannels = 3;
constexpr int kWeightBits = 32 - 8 - 2;

// The taps of one axis: output i reads inputs start[i] .. start[i] + count[i] - 1 with weights weight[i * width + k].
struct Axis {
    int64_t in = 0;
    int64_t out = 0;
    int64_t width = 0;
    std::vector<int32_t> start;
    std::vector<int32_t> count;
    std::vector<int32_t> weight;

    bool identity() const { return in == out; }
};

Axis make_axis(int64_t in, int64_t out);

// A view of interleaved RGB rows.
struct Image {
    const uint8_t *data;
    int64_t row_stride;
    int64_t height;
    int64_t width;
};

// Buffers reused from crop to crop; one a thread.
struct Scratch {
    std::vector<uint8_t> horizontal;
    std::vector<uint8_t> resized;
    std::vector<int32_t> sums;
};

// Resizes src to vertical.out x horizontal.out. The result lies in scratch, or is src itself where nothing changes.
Image resize(const Image &src, const Axis &vertical, const Axis &horizontal, Scratch &scratch);

}  // namespace ser_fast::pixels
