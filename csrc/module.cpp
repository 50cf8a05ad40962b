// Bindings only: one function an export. The library is ser_fast/_native.py's to import.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <string_view>
#include <utility>
#include <vector>

#include "check.h"
#include "claims/scan.h"
#include "pixels/crop.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ser_fast {
namespace {

using FrameArray = nb::ndarray<const uint8_t, nb::shape<-1, -1, -1, 3>, nb::device::cpu>;
using IndexArray = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using BoxArray = nb::ndarray<const int64_t, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;
using SizeArray = nb::ndarray<const int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
template <typename Value>
using OutArray = nb::ndarray<Value, nb::c_contig, nb::device::cpu>;
template <typename Value>
using TableArray = nb::ndarray<const Value, nb::shape<3, 256>, nb::c_contig, nb::device::cpu>;

pixels::Frames view(const FrameArray &frames) {
    SER_FAST_CHECK(frames.stride(2) == 3 && frames.stride(3) == 1, "frames: expected contiguous pixels, got strides ",
                   frames.stride(2), ", ", frames.stride(3));
    return {frames.data(),
            static_cast<int64_t>(frames.shape(0)),
            static_cast<int64_t>(frames.shape(1)),
            static_cast<int64_t>(frames.shape(2)),
            frames.stride(0),
            frames.stride(1)};
}

pixels::Crops view(const IndexArray &frame_idx, const BoxArray &boxes, const SizeArray &sizes) {
    SER_FAST_CHECK(frame_idx.shape(0) == boxes.shape(0) && boxes.shape(0) == sizes.shape(0),
                   "frame_idx, boxes, sizes: expected one row a box, got ", frame_idx.shape(0), ", ", boxes.shape(0),
                   ", ", sizes.shape(0));
    return {static_cast<int64_t>(boxes.shape(0)), frame_idx.data(), boxes.data(), sizes.data()};
}

void crop_resize(const FrameArray &frames, const IndexArray &frame_idx, const BoxArray &boxes, const SizeArray &sizes,
                 int num_threads, const OutArray<uint8_t> &out) {
    const nb::gil_scoped_release release;
    pixels::crop_resize(view(frames), view(frame_idx, boxes, sizes), num_threads, out.data(),
                        static_cast<int64_t>(out.size()));
}

template <typename Value>
void crop_patchify(const FrameArray &frames, const IndexArray &frame_idx, const BoxArray &boxes, const SizeArray &sizes,
                   int64_t patch, int64_t temporal, int64_t merge, const TableArray<Value> &table, int num_threads,
                   const OutArray<Value> &out) {
    const nb::gil_scoped_release release;
    pixels::crop_patchify(view(frames), view(frame_idx, boxes, sizes), {patch, temporal, merge}, table.data(),
                          num_threads, out.data(), static_cast<int64_t>(out.size()));
}

template <typename Value>
nb::ndarray<nb::numpy, Value> to_numpy(std::vector<Value> values, std::vector<size_t> shape) {
    auto *owner = new std::vector<Value>(std::move(values));
    nb::capsule free(owner, [](void *p) noexcept { delete static_cast<std::vector<Value> *>(p); });
    return nb::ndarray<nb::numpy, Value>(owner->data(), shape.size(), shape.data(), free);
}

// claims::Table as a dict of arrays.
nb::dict scan_claims(const std::vector<nb::bytes> &texts) {
    std::vector<std::string_view> views;
    views.reserve(texts.size());
    for (const nb::bytes &text : texts) {
        views.emplace_back(text.c_str(), text.size());
    }
    claims::Table table;
    {
        const nb::gil_scoped_release release;
        for (const std::string_view text : views) {
            claims::scan(text, table);
        }
    }
    const size_t num_claims = table.fault.size(), num_boxes = table.box.size() / 4;
    nb::dict columns;
    columns["claims_per_text"] = to_numpy(std::move(table.claims_per_text), {texts.size()});
    columns["layout"] = to_numpy(std::move(table.layout), {texts.size(), 5});
    columns["fault"] = to_numpy(std::move(table.fault), {num_claims});
    columns["span"] = to_numpy(std::move(table.span), {num_claims, 4});
    columns["time"] = to_numpy(std::move(table.time), {num_claims});
    columns["boxes_per_claim"] = to_numpy(std::move(table.boxes_per_claim), {num_claims});
    columns["box"] = to_numpy(std::move(table.box), {num_boxes, 4});
    return columns;
}

}  // namespace
}  // namespace ser_fast

NB_MODULE(_core, m) {
    m.def("scan_claims", &ser_fast::scan_claims, "texts"_a);
    m.def("crop_resize", &ser_fast::crop_resize, "frames"_a, "frame_idx"_a, "boxes"_a, "sizes"_a, "num_threads"_a,
          "out"_a);
    m.def("crop_patchify", &ser_fast::crop_patchify<int16_t>, "frames"_a, "frame_idx"_a, "boxes"_a, "sizes"_a,
          "patch"_a, "temporal"_a, "merge"_a, "table"_a, "num_threads"_a, "out"_a);
    m.def("crop_patchify", &ser_fast::crop_patchify<int32_t>, "frames"_a, "frame_idx"_a, "boxes"_a, "sizes"_a,
          "patch"_a, "temporal"_a, "merge"_a, "table"_a, "num_threads"_a, "out"_a);
}
