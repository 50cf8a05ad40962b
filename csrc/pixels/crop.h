// Boxes of video frames -> resized uint8 images, or rows of patches in Qwen-VL order.
#pragma once

#include <cstdint>

namespace ser_fast::pixels {

// uint8[F, H, W, 3] with contiguous pixels; frames and rows may be strided.
struct Frames {
    const uint8_t *data;
    int64_t num_frames, height, width;
    int64_t frame_stride, row_stride;
};

// num_boxes crops: frame_idx[i], boxes[4 i ..] as x1 y1 x2 y2 (half open), sizes[2 i ..] as height width after
// resizing.
struct Crops {
    int64_t num_boxes;
    const int64_t *frame_idx;
    const int64_t *boxes;
    const int64_t *sizes;
};

struct PatchLayout {
    int64_t patch, temporal, merge;
};

// out: the images one after another, uint8[height, width, 3] each.
void crop_resize(const Frames &frames, const Crops &crops, int num_threads, uint8_t *out, int64_t out_values);

// out: rows of (channel, time, y, x) values, rows ordered by (block row, block column, row in block, column in block).
// table[256 c + v] is the normalised value of grey level v in channel c; Value is the bit pattern of the output type.
template <typename Value>
void crop_patchify(const Frames &frames, const Crops &crops, const PatchLayout &layout, const Value *table,
                   int num_threads, Value *out, int64_t out_values);

}  // namespace ser_fast::pixels
