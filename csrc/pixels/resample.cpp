#include "pixels/resample.h"

#include <algorithm>
#include <cmath>

namespace ser_fast::pixels {
namespace {

constexpr double kCubicA = -0.5;
constexpr double kCubicSupport = 2.0;
constexpr int32_t kHalf = int32_t{1} << (kWeightBits - 1);

double cubic(double x) {
    x = std::abs(x);
    if (x < 1.0) {
        return ((kCubicA + 2.0) * x - (kCubicA + 3.0)) * x * x + 1.0;
    }
    if (x < 2.0) {
        return (((x - 5.0) * x + 8.0) * x - 4.0) * kCubicA;
    }
    return 0.0;
}

uint8_t to_uint8(int32_t sum) {
    return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

// [height, axis.in, 3] -> [height, axis.out, 3]
void horizontal_pass(const Image &src, const Axis &axis, uint8_t *dst) {
    for (int64_t y = 0; y < src.height; ++y) {
        const uint8_t *row = src.data + y * src.row_stride;
        for (int64_t x = 0; x < axis.out; ++x) {
            const int32_t *weight = axis.weight.data() + x * axis.width;
            const uint8_t *pixel = row + int64_t{axis.start[x]} * kChannels;
            int32_t red = kHalf, green = kHalf, blue = kHalf;
            for (int32_t k = 0; k < axis.count[x]; ++k, pixel += kChannels) {
                red += pixel[0] * weight[k];
                green += pixel[1] * weight[k];
                blue += pixel[2] * weight[k];
            }
            *dst++ = to_uint8(red);
            *dst++ = to_uint8(green);
            *dst++ = to_uint8(blue);
        }
    }
}

// [axis.in, width, 3] -> [axis.out, width, 3], a whole output row at a time
void vertical_pass(const Image &src, const Axis &axis, std::vector<int32_t> &sums, uint8_t *dst) {
    const int64_t row_values = src.width * kChannels;
    sums.resize(row_values);
    for (int64_t y = 0; y < axis.out; ++y) {
        std::fill(sums.begin(), sums.end(), kHalf);
        for (int32_t k = 0; k < axis.count[y]; ++k) {
            const uint8_t *row = src.data + (axis.start[y] + k) * src.row_stride;
            const int32_t weight = axis.weight[y * axis.width + k];
            for (int64_t i = 0; i < row_values; ++i) {
                sums[i] += row[i] * weight;
            }
        }
        for (int64_t i = 0; i < row_values; ++i) {
            *dst++ = to_uint8(sums[i]);
        }
    }
}

}  // namespace

Axis make_axis(int64_t in, int64_t out) {
    Axis axis;
    axis.in = in;
    axis.out = out;
    if (axis.identity()) {
        return axis;
    }
    const double scale = static_cast<double>(in) / static_cast<double>(out);
    const double filter_scale = std::max(scale, 1.0);
    const double support = kCubicSupport * filter_scale;
    axis.width = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
    axis.start.resize(out);
    axis.count.resize(out);
    axis.weight.assign(out * axis.width, 0);
    std::vector<double> exact(axis.width);
    const double inverse = 1.0 / filter_scale;
    for (int64_t i = 0; i < out; ++i) {
        const double center = (i + 0.5) * scale;
        const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
        const int64_t last = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), in);
        double total = 0.0;
        for (int64_t k = 0; k < last - first; ++k) {
            exact[k] = cubic((k + first - center + 0.5) * inverse);
            total += exact[k];
        }
        for (int64_t k = 0; k < last - first; ++k) {
            const double weight = (total != 0.0 ? exact[k] / total : exact[k]) * (int64_t{1} << kWeightBits);
            axis.weight[i * axis.width + k] = static_cast<int32_t>(weight < 0.0 ? weight - 0.5 : weight + 0.5);
        }
        axis.start[i] = static_cast<int32_t>(first);
        axis.count[i] = static_cast<int32_t>(last - first);
    }
    return axis;
}

Image resize(const Image &src, const Axis &vertical, const Axis &horizontal, Scratch &scratch) {
    Image image = src;
    if (!horizontal.identity()) {
        scratch.horizontal.resize(image.height * horizontal.out * kChannels);
        horizontal_pass(image, horizontal, scratch.horizontal.data());
        image = {scratch.horizontal.data(), horizontal.out * kChannels, image.height, horizontal.out};
    }
    if (!vertical.identity()) {
        scratch.resized.resize(vertical.out * image.width * kChannels);
        vertical_pass(image, vertical, scratch.sums, scratch.resized.data());
        image = {scratch.resized.data(), image.width * kChannels, vertical.out, image.width};
    }
    return image;
}

}  // namespace ser_fast::pixels
