// Quantised matrices as f32 or bf16: integers in blocks of 32 along each row, and the blocks' f16 scales behind all
// of them. Of 8 bits x = d q; of 4 bits x = d q + m, and byte i of a block has q[i] and q[i + 16].
//
// d q is exact in f32, so it does not matter whether the addition is fused with it: the numbers are the processor's.

struct Quantised {
    const unsigned char *quants;
    // In bytes behind the integers' start.
    u64 scales;
    u32 row_blocks;
    u32 bits;
};

// The f32 that a finite f16 stands for.
__device__ inline float of_f16(u16 half) {
    float magnitude = __uint_as_float((u32)(half & 0x7fff) << 13) * __uint_as_float(0x77800000u);
    return half & 0x8000 ? -magnitude : magnitude;
}

// Eight numbers of a block: those from place 8 * `eighth` on.
__device__ inline void eight(Quantised x, u64 block, u32 eighth, float *v) {
    const u16 *scales = (const u16 *)(x.quants + x.scales);
    if (x.bits == 8) {
        const signed char *q = (const signed char *)x.quants + 32 * block + 8 * eighth;
        float d = of_f16(scales[block]);
        for (int k = 0; k < 8; k++) v[k] = d * (float)q[k];
    } else {
        const unsigned char *q = x.quants + 16 * block + 8 * (eighth & 1);
        float d = of_f16(scales[2 * block]), m = of_f16(scales[2 * block + 1]);
        u32 shift = eighth < 2 ? 0 : 4;
        for (int k = 0; k < 8; k++) v[k] = d * (float)(q[k] >> shift & 15) + m;
    }
}

// Eight numbers to `into`, as far as the row has them.
__device__ inline void put8(Numbers into, u64 i, u32 left, const float *v) {
    if (left >= 8 && i % 4 == 0) {
        Four low = {{v[0], v[1], v[2], v[3]}}, high = {{v[4], v[5], v[6], v[7]}};
        put4(into, i, low);
        put4(into, i + 4, high);
        return;
    }
    for (u32 k = 0; k < 8 && k < left; k++) put(into, i + k, v[k]);
}

// All of a matrix.
extern "C" __global__ void unpack(Numbers into, Quantised x, u32 rows, u32 cols) {
    u64 n = 4 * (u64)rows * x.row_blocks, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u64 block = i / 4, row = block / x.row_blocks;
        u32 eighth = i % 4, column = 32 * (u32)(block % x.row_blocks) + 8 * eighth;
        if (column >= cols) continue;
        float v[8];
        eight(x, block, eighth, v);
        put8(into, row * cols + column, cols - column, v);
    }
}

// into[i] = table[index[i]], or added to what is there.
extern "C" __global__ void gather_quantised(
    Numbers into, Quantised table, const u32 *index, u32 rows, u32 cols, u32 adds) {
    u64 n = 4 * (u64)rows * table.row_blocks, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u64 row = i / 4 / table.row_blocks, at = i / 4 % table.row_blocks;
        u32 eighth = i % 4, column = 32 * (u32)at + 8 * eighth;
        if (column >= cols) continue;
        float v[8];
        eight(table, (u64)index[row] * table.row_blocks + at, eighth, v);
        u64 place = row * cols + column;
        for (u32 k = 0; adds && k < 8 && k < cols - column; k++) v[k] += get(into, place + k);
        put8(into, place, cols - column, v);
    }
}
