// Eight bf16 at a time, computed with as f32.

struct Eight {
    float v[8];
};

__device__ inline Eight unpacked(uint4 raw) {
    u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
    Eight e;
    for (int k = 0; k < 4; k++) {
        e.v[2 * k] = __uint_as_float(words[k] << 16);
        e.v[2 * k + 1] = __uint_as_float(words[k] & 0xffff0000u);
    }
    return e;
}

__device__ inline Eight load8(const u16 *x) {
    return unpacked(*(const uint4 *)x);
}
