// Rows looked up in tables, and rows added back to them.

// into[i] = table[index[i]], or added to what is there.
extern "C" __global__ void gather(
    Numbers into, Numbers table, const u32 *index, u32 rows, u32 width, u32 adds) {
    u64 n = (u64)rows * width, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float x = get(table, (u64)index[i / width] * width + i % width);
        put(into, i, adds ? get(into, i) + x : x);
    }
}

// Images cut into patches: for each patch its channels, rows and columns.
extern "C" __global__ void patches(
    Numbers into, Numbers pixels, u32 channels, u32 height, u32 width, u32 patch_height, u32 patch_width, u64 n) {
    u64 step = (u64)gridDim.x * blockDim.x;
    u32 columns = width / patch_width, rows = height / patch_height;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u32 x = i % patch_width, line = i / patch_width;
        u32 y = line % patch_height, rest = line / patch_height;
        u32 channel = rest % channels, patch = rest / channels;
        u32 column = patch % columns, row = patch / columns % rows, image = patch / columns / rows;
        u64 at = ((u64)image * channels + channel) * height + row * patch_height + y;
        put(into, i, get(pixels, at * width + column * patch_width + x));
    }
}

// into[rows[k]] = or += the sum of from[place] over the places of k, in their order.
extern "C" __global__ void sum_places(
    Numbers into, Numbers from, const u32 *rows, const u32 *starts, const u32 *places, u32 count,
    u32 width, u32 adds) {
    u64 n = (u64)count * width, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u64 k = i / width, column = i % width;
        u64 row = rows ? rows[k] : k;
        float sum = 0.f;
        for (u32 place = starts[k]; place < starts[k + 1]; place++) {
            sum += get(from, (u64)places[place] * width + column);
        }
        u64 at = row * width + column;
        put(into, at, adds ? get(into, at) + sum : sum);
    }
}

// into[rows[i]] += from[i], where no row occurs twice.
extern "C" __global__ void add_rows(Numbers into, Numbers from, const u32 *rows, u32 count, u32 width) {
    u64 n = (u64)count * width, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u64 at = (u64)rows[i / width] * width + i % width;
        put(into, at, get(into, at) + get(from, i));
    }
}

// Copies a rectangle.
extern "C" __global__ void copy_rectangle(
    Numbers into, u64 into_first, u32 into_stride, Numbers from, u64 from_first, u32 from_stride,
    u32 rows, u32 cols) {
    u64 n = (u64)rows * cols, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u64 row = i / cols, column = i % cols;
        put(into, into_first + row * into_stride + column, get(from, from_first + row * from_stride + column));
    }
}

// One row for each run of rows: the sums of its columns, in some columns of x. Blocks of 128 columns, four a
// thread, by 8 rows.
extern "C" __global__ void run_sums(
    Numbers into, Numbers x, u64 first, u32 stride, u32 cols, const u32 *starts, const u32 *ends,
    const float *factors) {
    u32 column = blockIdx.x * 128 + 4 * threadIdx.x, run = blockIdx.y;
    __shared__ float sums[8][128];
    Four sum = {};
    bool whole = cols % 4 == 0 && stride % 4 == 0 && first % 4 == 0;
    for (u32 row = starts[run] + threadIdx.y; column < cols && row < ends[run]; row += 8) {
        float factor = factors ? factors[row] : 1.f;
        if (factor == 0.f) continue;
        u64 i = first + (u64)row * stride + column;
        Four f = {};
        if (whole) {
            f = get4(x, i);
        } else {
            for (u32 k = 0; k < 4 && column + k < cols; k++) f.v[k] = get(x, i + k);
        }
        for (int k = 0; k < 4; k++) sum.v[k] = fmaf(factor, f.v[k], sum.v[k]);
    }
    for (int k = 0; k < 4; k++) sums[threadIdx.y][4 * threadIdx.x + k] = sum.v[k];
    __syncthreads();
    u32 at = 32 * threadIdx.y + threadIdx.x;
    if (at >= 128 || blockIdx.x * 128 + at >= cols) return;
    float all = 0.f;
    for (int k = 0; k < 8; k++) all += sums[k][at];
    put(into, (u64)run * cols + blockIdx.x * 128 + at, all);
}

// The sum over `parts` rows of partial sums. Blocks of 32 columns by 8 parts.
extern "C" __global__ void sum_parts(Numbers into, const float *partial, u32 parts, u32 cols, u32 stride) {
    __shared__ float sums[8][32];
    u32 column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.f;
    if (column < cols) {
#pragma unroll 4
        for (u32 part = threadIdx.y; part < parts; part += 8) sum += partial[(u64)part * stride + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= cols) return;
    for (int k = 1; k < 8; k++) sum += sums[k][threadIdx.x];
    put(into, column, sum);
}

// The inner products of the rows of two tensors of so many rows: a warp for each.
extern "C" __global__ void inner_products(Numbers x, Numbers y, float *into, u64 rows, u32 cols) {
    u64 row = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    float sum = 0.f;
    if (cols % 4 == 0) {
        for (u32 i = 4 * (threadIdx.x % 32); i < cols; i += 128) {
            Four a = get4(x, row * cols + i), b = get4(y, row * cols + i);
            for (int k = 0; k < 4; k++) sum = fmaf(a.v[k], b.v[k], sum);
        }
    } else {
        for (u32 i = threadIdx.x % 32; i < cols; i += 32) sum = fmaf(get(x, row * cols + i), get(y, row * cols + i), sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) into[row] = sum;
}
