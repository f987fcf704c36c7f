"""Images as PIL and transformers see them: crates/data/tests/fixtures/images.json.

Small images in every form that is read, what PIL's convert("RGB") and convert("L") make of them, what it
makes of other sizes, and what image processors of transformers hand to a model.

    pip install pillow==11.3.0
    python3 tools/image_fixtures.py > crates/data/tests/fixtures/images.json

PIL 13 resizes rows before columns for some shapes, which models in use were not trained with: hence the older one.
"""

import base64
import io
import json
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

WIDTH, HEIGHT = 13, 9


def text(data):
    return base64.b64encode(bytes(data)).decode()


def picture(width=WIDTH, height=HEIGHT, seed=1):
    """Smooth colours with an edge and some noise."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [255 * x / (width - 1), 255 * y / (height - 1), 128 + 100 * np.sin(x + 2 * y)]
    image = np.stack(planes, -1)
    image[height // 3 : height // 2, width // 4 : width // 2] = [250, 10, 200]
    image += random.integers(-20, 21, image.shape)
    return Image.fromarray(image.clip(0, 255).astype(np.uint8))


def encoded(image, kind="PNG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def png16(channels):
    """A PNG of 16 bits, which PIL reads and does not write."""
    values = np.array(picture().convert("RGBA" if channels == 4 else "RGB"), dtype=np.uint16)
    values = values[..., :channels] * 256 + 77
    kind = {1: 0, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)

    def chunk(name, data):
        check = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 16, kind, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def files():
    image = picture()
    alpha = image.copy()
    alpha.putalpha(Image.fromarray((np.arange(WIDTH * HEIGHT) % 256).astype(np.uint8).reshape(HEIGHT, WIDTH)))
    wide = np.arange(WIDTH * HEIGHT, dtype=np.uint16).reshape(HEIGHT, WIDTH) * 5
    palette = image.quantize(12)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "png rgb", encoded(image), 0
    yield "png rgba", encoded(alpha), 0
    yield "png grey", encoded(image.convert("L")), 0
    yield "png grey alpha", encoded(alpha.convert("LA")), 0
    yield "png one bit", encoded(image.convert("1")), 0
    yield "png palette", encoded(palette), 0
    yield "png transparent palette", encoded(palette, transparency=3), 0
    yield "png transparent grey", encoded(image.convert("L"), transparency=7), 0
    yield "png grey of 16 bits", encoded(Image.fromarray(wide)), 0
    yield "png rgb of 16 bits", png16(3), 0
    yield "png rgba of 16 bits", png16(4), 0
    yield "png turned", encoded(image, exif=exif), 0
    # Decoders of JPEG may round differently.
    yield "jpeg", encoded(image, "JPEG", quality=90, subsampling=0), 2
    yield "jpeg grey", encoded(image.convert("L"), "JPEG", quality=90), 1
    yield "jpeg turned", encoded(image, "JPEG", quality=90, subsampling=0, exif=exif), 2
    yield "jpeg progressive", encoded(image, "JPEG", quality=90, subsampling=0, progressive=True), 2
    yield "jpeg of half colours", encoded(picture(48, 32), "JPEG", quality=90, subsampling=2), 4


def opened(data):
    image = Image.open(io.BytesIO(data))
    return ImageOps.exif_transpose(image)


def on_white(image):
    """As convert_to_rgb of transformers 5 does it."""
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = Image.alpha_composite(Image.new("RGBA", image.size, (255,) * 4), image.convert("RGBA"))
    return image.convert("RGB")


def decoded():
    for name, data, within in files():
        rgb, grey = opened(data).convert("RGB"), opened(data).convert("L")
        yield {
            "name": name,
            "file": text(data),
            "size": rgb.size,
            "rgb": text(rgb.tobytes()),
            "grey": text(grey.tobytes()),
            "white": text(on_white(opened(data)).tobytes()),
            "within": within,
        }


def resized():
    sizes = [(9, 7), (40, 31), (23, 5), (6, 17), (64, 3), (23, 17), (1, 1)]
    for channels, image in [(3, picture(23, 17)), (1, picture(23, 17).convert("L"))]:
        cases = [(number, size) for number in range(6) for size in sizes]
        yield {
            "channels": channels,
            "size": image.size,
            "pixels": text(image.tobytes()),
            "cases": [[n, *size, text(image.resize(size, resample=n).tobytes())] for n, size in cases],
        }


def processed():
    kinds = [
        ViTImageProcessorPil(size={"height": 12, "width": 10}),
        ViTImageProcessorPil(size={"height": 12, "width": 10}, resample=3, image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6]),
        ViTImageProcessorPil(do_resize=False, do_normalize=False, rescale_factor=0.01),
        ViTImageProcessorPil(do_resize=False, do_rescale=False),
        DeiTImageProcessorPil(size={"height": 16, "width": 18}, crop_size={"height": 11, "width": 9}),
        DeiTImageProcessorPil(do_resize=False, crop_size={"height": 20, "width": 30}),
        DeiTImageProcessorPil(do_resize=False, crop_size={"height": 12, "width": 30}),
        BitImageProcessorPil(size={"shortest_edge": 14}, crop_size={"height": 12, "width": 12}),
    ]
    for image in [picture(23, 17), picture(11, 26)]:
        cases = []
        for processor in kinds:
            values = processor(image, return_tensors="np")["pixel_values"][0]
            numbers = text(values.astype("<f4").tobytes())
            cases.append([processor.to_json_string(), values.shape, numbers])
        yield {"size": image.size, "pixels": text(image.tobytes()), "cases": cases}


if __name__ == "__main__":
    fixtures = {"decoded": list(decoded()), "resized": list(resized()), "processed": list(processed())}
    json.dump(fixtures, sys.stdout, indent=0)
    print()
