#include "pixels/crop.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "check.h"
#include "pixels/resample.h"

namespace ser_fast::pixels {
namespace {

void check_crops(const Frames &frames, const Crops &crops, int64_t multiple) {
    for (int64_t i = 0; i < crops.num_boxes; ++i) {
        const int64_t frame = crops.frame_idx[i];
        SER_FAST_CHECK(0 <= frame && frame < frames.num_frames, "frame_idx[", i, "]: expected 0 <= index < ",
                       frames.num_frames, ", got ", frame);
        const int64_t *box = crops.boxes + 4 * i;
        SER_FAST_CHECK(0 <= box[0] && box[0] < box[2] && box[2] <= frames.width && 0 <= box[1] && box[1] < box[3] &&
                           box[3] <= frames.height,
                       "boxes[", i, "]: expected a non-empty box inside a frame of ", frames.height, " x ",
                       frames.width, " (height x width), got x1 ", box[0], ", y1 ", box[1], ", x2 ", box[2], ", y2 ",
                       box[3]);
        const int64_t *size = crops.sizes + 2 * i;
        SER_FAST_CHECK(size[0] > 0 && size[1] > 0 && size[0] % multiple == 0 && size[1] % multiple == 0, "sizes[", i,
                       "]: expected positive multiples of ", multiple, ", got ", size[0], " x ", size[1]);
    }
}

Image crop(const Frames &frames, const Crops &crops, int64_t i) {
    const int64_t *box = crops.boxes + 4 * i;
    return {frames.data + crops.frame_idx[i] * frames.frame_stride + box[1] * frames.row_stride + box[0] * kChannels,
            frames.row_stride, box[3] - box[1], box[2] - box[0]};
}

// Calls work(i, resized image) for each box; boxes are handed out one at a time, so uneven sizes balance.
template <typename Work>
void for_each_crop(const Frames &frames, const Crops &crops, int num_threads, Work work) {
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto loop = [&] {
        try {
            Scratch scratch;
            for (int64_t i = next++; i < crops.num_boxes; i = next++) {
                const Image source = crop(frames, crops, i);
                const Axis vertical = make_axis(source.height, crops.sizes[2 * i]);
                const Axis horizontal = make_axis(source.width, crops.sizes[2 * i + 1]);
                work(i, resize(source, vertical, horizontal, scratch));
            }
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            failure = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> threads;  // joined where the block ends
        for (int64_t t = 1; t < std::min<int64_t>(num_threads, crops.num_boxes); ++t) {
            threads.emplace_back(loop);
        }
        loop();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

// Where each crop's output starts, and the total.
std::vector<int64_t> output_offsets(const Crops &crops, int64_t values_per_pixel) {
    std::vector<int64_t> offsets(crops.num_boxes + 1, 0);
    for (int64_t i = 0; i < crops.num_boxes; ++i) {
        offsets[i + 1] = offsets[i] + crops.sizes[2 * i] * crops.sizes[2 * i + 1] * values_per_pixel;
    }
    return offsets;
}

template <typename Value>
void patchify(const Image &image, const PatchLayout &layout, const Value *table, Value *out) {
    const int64_t patch = layout.patch;
    const int64_t block = patch * layout.merge;
    const int64_t plane = patch * patch;
    for (int64_t by = 0; by < image.height; by += block) {
        for (int64_t bx = 0; bx < image.width; bx += block) {
            for (int64_t y0 = by; y0 < by + block; y0 += patch) {
                for (int64_t x0 = bx; x0 < bx + block; x0 += patch) {
                    for (int64_t c = 0; c < kChannels; ++c, out += layout.temporal * plane) {
                        const Value *level = table + 256 * c;
                        Value *value = out;
                        for (int64_t y = y0; y < y0 + patch; ++y) {
                            const uint8_t *pixel = image.data + y * image.row_stride + x0 * kChannels + c;
                            for (int64_t x = 0; x < patch; ++x, pixel += kChannels) {
                                *value++ = level[*pixel];
                            }
                        }
                        for (int64_t t = 1; t < layout.temporal; ++t) {
                            value = std::copy(out, out + plane, value);
                        }
                    }
                }
            }
        }
    }
}

}  // namespace

void crop_resize(const Frames &frames, const Crops &crops, int num_threads, uint8_t *out, int64_t out_values) {
    check_crops(frames, crops, 1);
    const std::vector<int64_t> offsets = output_offsets(crops, kChannels);
    SER_FAST_CHECK(out_values == offsets.back(), "out: expected ", offsets.back(), " values, got ", out_values);
    for_each_crop(frames, crops, num_threads, [&](int64_t i, const Image &image) {
        uint8_t *row = out + offsets[i];
        for (int64_t y = 0; y < image.height; ++y) {
            row = std::copy_n(image.data + y * image.row_stride, image.width * kChannels, row);
        }
    });
}

template <typename Value>
void crop_patchify(const Frames &frames, const Crops &crops, const PatchLayout &layout, const Value *table,
                   int num_threads, Value *out, int64_t out_values) {
    SER_FAST_CHECK(layout.patch > 0 && layout.temporal > 0 && layout.merge > 0, "spec: expected positive sizes, got ",
                   layout.patch, ", ", layout.temporal, ", ", layout.merge);
    check_crops(frames, crops, layout.patch * layout.merge);
    const std::vector<int64_t> offsets = output_offsets(crops, kChannels * layout.temporal);
    SER_FAST_CHECK(out_values == offsets.back(), "out: expected ", offsets.back(), " values, got ", out_values);
    for_each_crop(frames, crops, num_threads,
                  [&](int64_t i, const Image &image) { patchify(image, layout, table, out + offsets[i]); });
}

template void crop_patchify(const Frames &, const Crops &, const PatchLayout &, const int16_t *, int, int16_t *,
                            int64_t);
template void crop_patchify(const Frames &, const Crops &, const PatchLayout &, const int32_t *, int, int32_t *,
                            int64_t);

}  // namespace ser_fast::pixels
