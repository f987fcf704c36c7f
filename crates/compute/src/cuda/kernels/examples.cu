// Squared norms of each example's gradient of a weight, without keeping the gradient.
//
// An example's gradient is L^T R over its rows: L the gradient of the result, R the input. With s, t over rows
//
//   |L^T R|^2 = sum over s, t of (L_s . L_t) (R_s . R_t)
//
// which is cheaper for few rows; for many, L^T R itself is made, a tile at a time. Where rows of a table were
// looked up, R_s . R_t is one where both are the same row and zero elsewhere. Tiles are 64 by 64, and a block does
// one: by tensor cores where numbers are bf16, else in f32. Sums over short runs are added up in f32 (or f64)
// rounded to nearest, because tensor cores cut off what does not fit.

#define SIDE 64
#define STAGES 3
#define SHORT 32 // columns or rows of a run in f32

struct Outer {
    Numbers left, right;
    // Pairs of a first column and a count: the columns of `left`.
    const u32 *columns;
    // The row of a table that each row looked up, in place of `right`.
    const u32 *index;
    u32 left_stride, right_stride, outputs, inputs, parts;
    // The row of results that this one's go to.
    u32 entry;
    float slack;
    u32 unused;
};

// Up to so many columns of a factor, from one on.
struct Piece {
    Numbers from;
    u64 column;
    u32 stride, width;
};

__device__ inline u32 pieces(u32 columns, u32 side) {
    return (columns + side - 1) / side;
}

__device__ inline u32 left_pieces(const Outer &o, u32 side) {
    u32 all = 0;
    for (u32 part = 0; part < o.parts; part++) all += pieces(o.columns[2 * part + 1], side);
    return all;
}

__device__ inline Piece left_piece(const Outer &o, u32 number, u32 side) {
    u32 part = 0;
    while (part + 1 < o.parts && number >= pieces(o.columns[2 * part + 1], side)) {
        number -= pieces(o.columns[2 * part + 1], side);
        part++;
    }
    u32 rest = o.columns[2 * part + 1] - number * side;
    return {o.left, (u64)o.columns[2 * part] + number * side, o.left_stride, rest < side ? rest : side};
}

__device__ inline Piece right_piece(const Outer &o, u32 number, u32 side) {
    u32 rest = o.inputs - number * side;
    return {o.right, (u64)number * side, o.right_stride, rest < side ? rest : side};
}

__device__ inline double warp_total(double x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// The sum over a block of at most 256 threads, in every thread.
__device__ inline double block_total(double x) {
    __shared__ double parts[8];
    x = warp_total(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0;
    for (u32 warp = 0; warp < blockDim.x / 32; warp++) sum += parts[warp];
    return sum;
}

// What a tile of inner products adds up to.
struct Found {
    double square, size, length, trace;
    bool on_diagonal;

    // The inner products of rows i and j by left and right.
    __device__ void add(u32 i, u32 j, double by_left, double by_right) {
        square += by_left * by_right;
        if (on_diagonal && i == j) {
            size += by_left * by_right;
            length += sqrt(by_left) * sqrt(by_right);
            trace += by_left + by_right;
        }
    }

    // A tile below the diagonal counts for the one above, too.
    __device__ void put(double *into) {
        double all[4] = {on_diagonal ? square : 2 * square, size, length, trace};
        for (int k = 0; k < 4; k++) {
            double sum = block_total(all[k]);
            if (threadIdx.x == 0) into[k] = sum;
        }
    }
};

// An example's rows, and the tile of its inner products: rows from `top`, and those from `side`.
struct Pair {
    u32 first, rows, top, side;
};

__device__ inline Pair pair_of(const u32 *tiles) {
    const u32 *t = tiles + 4 * blockIdx.x;
    return {t[0], t[1], SIDE * t[2], SIDE * t[3]};
}

__device__ inline bool same_row(const Outer &o, const Pair &p, u32 i, u32 j) {
    return i < p.rows && j < p.rows && o.index[p.first + i] == o.index[p.first + j];
}

// Copies eight numbers to shared memory in the background; zeros where nothing is there.
__device__ inline void fetch(u16 *into, const u16 *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(into)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

// What was fetched since the last time belongs together.
__device__ inline void together() {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

// Waits for all but the last so many of these.
template <int MOST>
__device__ inline void arrived() {
    asm volatile("cp.async.wait_group %0;" : : "n"(MOST) : "memory");
}

__device__ inline void fetch_tile(Tile<SIDE> into, const Piece &piece, u64 row, u32 rows) {
    const u16 *from = (const u16 *)piece.from.start;
    for (u32 i = threadIdx.x; i < SIDE * SIDE / 8; i += blockDim.x) {
        u32 r = i / (SIDE / 8), c = i % (SIDE / 8) * 8;
        bool there = r < rows && c < piece.width;
        u64 at = (row + r) * piece.stride + piece.column + c;
        fetch(into.start + r * Tile<SIDE>::STRIDE + c, there ? from + at : from, there);
    }
}

__device__ inline u32 rest(u32 all, u32 first) {
    return all > first ? all - first : 0;
}

__device__ inline void add_run(float (*sum)[4][4], const float (*run)[4][4]) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) sum[m][n][e] += run[m][n][e];
        }
    }
}

// Inner products of rows; four warps, each with 32 by 32 of them.
extern "C" __global__ void __launch_bounds__(128) gram_tensor(const Outer *all, const u32 *tiles, double *sums) {
    extern __shared__ __align__(16) u16 memory[];
    Outer o = all[blockIdx.y];
    Pair p = pair_of(tiles);
    bool same = p.top == p.side;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 of_left = left_pieces(o, SIDE), count = of_left + (o.index ? 0 : pieces(o.inputs, SIDE));
    auto tile = [&](u32 number, u32 which) {
        return Tile<SIDE>{memory + (number % STAGES * 2 + which) * SIDE * Tile<SIDE>::STRIDE};
    };
    auto load = [&](u32 number) {
        if (number < count) {
            Piece piece = number < of_left ? left_piece(o, number, SIDE) : right_piece(o, number - of_left, SIDE);
            fetch_tile(tile(number, 0), piece, p.first + p.top, rest(p.rows, p.top));
            if (!same) fetch_tile(tile(number, 1), piece, p.first + p.side, rest(p.rows, p.side));
        }
        together();
    };
    for (u32 number = 0; number + 1 < STAGES; number++) load(number);
    float by_left[2][4][4] = {}, by_right[2][4][4] = {};
    for (u32 number = 0; number < count; number++) {
        arrived<STAGES - 2>();
        __syncthreads();
        load(number + STAGES - 1);
        Tile<SIDE> x = tile(number, 0), y = tile(number, same ? 0 : 1);
        float run[2][4][4] = {};
#pragma unroll
        for (int k = 0; k < SIDE; k += 16) {
            u32 a[2][4], b[2][4];
#pragma unroll
            for (int m = 0; m < 2; m++) x.left(a[m], warp / 2 * 32 + 16 * m, k);
#pragma unroll
            for (int n = 0; n < 2; n++) y.right(b[n], warp % 2 * 32 + 16 * n, k);
#pragma unroll
            for (int m = 0; m < 2; m++) {
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    multiply(run[m][2 * n], a[m], b[n][0], b[n][1]);
                    multiply(run[m][2 * n + 1], a[m], b[n][2], b[n][3]);
                }
            }
        }
        if (number < of_left) {
            add_run(by_left, run);
        } else {
            add_run(by_right, run);
        }
    }
    Found found = {0, 0, 0, 0, same};
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 i = p.top + warp / 2 * 32 + 16 * m + lane / 4 + e / 2 * 8;
                u32 j = p.side + warp % 2 * 32 + 8 * n + lane % 4 * 2 + e % 2;
                double right = o.index ? same_row(o, p, i, j) : by_right[m][n][e];
                found.add(i, j, by_left[m][n][e], right);
            }
        }
    }
    found.put(sums + 4 * ((u64)blockIdx.y * gridDim.x + blockIdx.x));
}

// The same in f32: 256 threads, each with every 16th row by every 16th.
extern "C" __global__ void __launch_bounds__(256) gram_plain(const Outer *all, const u32 *tiles, double *sums) {
    __shared__ float x[SIDE][SHORT + 1], y[SIDE][SHORT + 1];
    Outer o = all[blockIdx.y];
    Pair p = pair_of(tiles);
    u32 across = threadIdx.x % 16, down = threadIdx.x / 16;
    u32 of_left = left_pieces(o, SHORT), count = of_left + (o.index ? 0 : pieces(o.inputs, SHORT));
    double by_left[4][4] = {}, by_right[4][4] = {};
    for (u32 number = 0; number < count; number++) {
        Piece piece = number < of_left ? left_piece(o, number, SHORT) : right_piece(o, number - of_left, SHORT);
        __syncthreads();
        for (u32 i = threadIdx.x; i < SIDE * SHORT; i += blockDim.x) {
            u32 r = i / SHORT, c = i % SHORT;
            auto at = [&](u32 row) {
                bool there = row < p.rows && c < piece.width;
                return there ? get(piece.from, (u64)(p.first + row) * piece.stride + piece.column + c) : 0.f;
            };
            x[r][c] = at(p.top + r);
            y[r][c] = at(p.side + r);
        }
        __syncthreads();
        float run[4][4] = {};
        for (int k = 0; k < SHORT; k++) {
            for (int m = 0; m < 4; m++) {
                for (int n = 0; n < 4; n++) run[m][n] = fmaf(x[down + 16 * m][k], y[across + 16 * n][k], run[m][n]);
            }
        }
        for (int m = 0; m < 4; m++) {
            for (int n = 0; n < 4; n++) {
                if (number < of_left) {
                    by_left[m][n] += run[m][n];
                } else {
                    by_right[m][n] += run[m][n];
                }
            }
        }
    }
    Found found = {0, 0, 0, 0, p.top == p.side};
    for (int m = 0; m < 4; m++) {
        for (int n = 0; n < 4; n++) {
            u32 i = p.top + down + 16 * m, j = p.side + across + 16 * n;
            found.add(i, j, by_left[m][n], o.index ? same_row(o, p, i, j) : by_right[m][n]);
        }
    }
    found.put(sums + 4 * ((u64)blockIdx.y * gridDim.x + blockIdx.x));
}

// A tile of an example's gradient: outputs by inputs. There are blocks for `most` tiles an example.
struct Part {
    u32 first, rows;
    Piece left, right;
    bool there;
};

__device__ inline Part part_of(const Outer &o, const u32 *examples, u32 most) {
    u32 tile = blockIdx.x % most, across = pieces(o.inputs, SIDE);
    const u32 *e = examples + 2 * (blockIdx.x / most);
    if (tile >= across * left_pieces(o, SIDE)) return {0, 0, {}, {}, false};
    return {e[0], e[1], left_piece(o, tile / across, SIDE), right_piece(o, tile % across, SIDE), true};
}

__device__ inline void put_square(double *sums, double square) {
    square = block_total(square);
    if (threadIdx.x == 0) sums[(u64)blockIdx.y * gridDim.x + blockIdx.x] = square;
}

// The sum of squares of a tile of the gradient; four warps, each with 32 by 32 of it.
extern "C" __global__ void __launch_bounds__(128)
    gradient_tensor(const Outer *all, const u32 *examples, u32 most, double *sums) {
    extern __shared__ __align__(16) u16 memory[];
    Outer o = all[blockIdx.y];
    Part p = part_of(o, examples, most);
    if (!p.there) return put_square(sums, 0);
    int warp = threadIdx.x / 32;
    u32 count = pieces(p.rows, SIDE);
    auto tile = [&](u32 number, u32 which) {
        return Tile<SIDE>{memory + (number % STAGES * 2 + which) * SIDE * Tile<SIDE>::STRIDE};
    };
    auto load = [&](u32 number) {
        if (number < count) {
            u32 row = number * SIDE;
            fetch_tile(tile(number, 0), p.left, p.first + row, p.rows - row);
            fetch_tile(tile(number, 1), p.right, p.first + row, p.rows - row);
        }
        together();
    };
    for (u32 number = 0; number + 1 < STAGES; number++) load(number);
    float sum[2][4][4] = {};
    for (u32 number = 0; number < count; number++) {
        arrived<STAGES - 2>();
        __syncthreads();
        load(number + STAGES - 1);
        Tile<SIDE> x = tile(number, 0), y = tile(number, 1);
        float run[2][4][4] = {};
#pragma unroll
        for (int k = 0; k < SIDE; k += 16) {
            u32 a[2][4], b[2][4];
#pragma unroll
            for (int m = 0; m < 2; m++) x.left_turned(a[m], k, warp / 2 * 32 + 16 * m);
#pragma unroll
            for (int n = 0; n < 2; n++) y.right_turned(b[n], k, warp % 2 * 32 + 16 * n);
#pragma unroll
            for (int m = 0; m < 2; m++) {
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    multiply(run[m][2 * n], a[m], b[n][0], b[n][1]);
                    multiply(run[m][2 * n + 1], a[m], b[n][2], b[n][3]);
                }
            }
        }
        add_run(sum, run);
    }
    double square = 0;
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) square += (double)sum[m][n][e] * sum[m][n][e];
        }
    }
    put_square(sums, square);
}

// The same in f32.
extern "C" __global__ void __launch_bounds__(256)
    gradient_plain(const Outer *all, const u32 *examples, u32 most, double *sums) {
    __shared__ float x[SHORT][SIDE], y[SHORT][SIDE];
    Outer o = all[blockIdx.y];
    Part p = part_of(o, examples, most);
    if (!p.there) return put_square(sums, 0);
    u32 across = threadIdx.x % 16, down = threadIdx.x / 16;
    double sum[4][4] = {};
    for (u32 row = 0; row < p.rows; row += SHORT) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < SIDE * SHORT; i += blockDim.x) {
            u32 r = i / SIDE, c = i % SIDE;
            auto at = [&](const Piece &piece) {
                bool there = row + r < p.rows && c < piece.width;
                return there ? get(piece.from, (u64)(p.first + row + r) * piece.stride + piece.column + c) : 0.f;
            };
            x[r][c] = at(p.left);
            y[r][c] = at(p.right);
        }
        __syncthreads();
        float run[4][4] = {};
        for (int k = 0; k < SHORT; k++) {
            for (int m = 0; m < 4; m++) {
                for (int n = 0; n < 4; n++) run[m][n] = fmaf(x[k][down + 16 * m], y[k][across + 16 * n], run[m][n]);
            }
        }
        for (int m = 0; m < 4; m++) {
            for (int n = 0; n < 4; n++) sum[m][n] += run[m][n];
        }
    }
    double square = 0;
    for (int m = 0; m < 4; m++) {
        for (int n = 0; n < 4; n++) square += sum[m][n] * sum[m][n];
    }
    put_square(sums, square);
}

// The squares of each row of both factors; a warp does a row.
extern "C" __global__ void row_lengths(const Outer *all, float *lengths, u32 rows) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    Outer o = all[blockIdx.y];
    float left = 0.f, right = 0.f;
    for (u32 part = 0; part < o.parts; part++) {
        u64 first = (u64)row * o.left_stride + o.columns[2 * part];
        for (u32 i = lane; i < o.columns[2 * part + 1]; i += 32) {
            float x = get(o.left, first + i);
            left = fmaf(x, x, left);
        }
    }
    for (u32 i = lane; i < o.inputs; i += 32) {
        float x = get(o.right, (u64)row * o.right_stride + i);
        right = fmaf(x, x, right);
    }
    left = warp_sum(left), right = warp_sum(right);
    if (lane == 0) {
        float *into = lengths + 2 * ((u64)blockIdx.y * rows + row);
        into[0] = left, into[1] = right;
    }
}

// What is found must not be too small, so each square is made a little larger:
//
// - Rounding errors of a sum grow with the size of its terms, D = sum of |L_t|^2 |R_t|^2, as on the processor.
// - What is below the smallest number was lost.
// - The gradient is later made of factors that are rounded again, by at most `slack` of each number: it may be longer
//   by slack * sum of |L_t| |R_t|.
//
// A square that is no number stays none.
#define SMALLEST 1.1754943508222875e-38

// An example's square from the sums of its tiles of inner products; a warp does one.
extern "C" __global__ void gram_squares(
    const Outer *all, const double *sums, const u32 *examples, const u32 *starts, u32 count, float rounding,
    double *into) {
    u32 example = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (example >= count) return;
    Outer o = all[blockIdx.y];
    double found[4] = {};
    for (u32 tile = starts[example] + lane; tile < starts[example + 1]; tile += 32) {
        for (int k = 0; k < 4; k++) found[k] += sums[4 * ((u64)blockIdx.y * starts[count] + tile) + k];
    }
    for (int k = 0; k < 4; k++) found[k] = warp_total(found[k]);
    // |(s, t)| is at most the mean of (s, s) and (t, t), so all of them at most rows * trace.
    double lost = SMALLEST * ((double)o.outputs + o.inputs) * examples[2 * example + 1] * found[3];
    double square = found[0] < 0 ? 0 : found[0];
    double norm = sqrt(square + rounding * found[1] + lost) + o.slack * found[2];
    if (lane == 0) into[(u64)o.entry * count + example] = norm * norm;
}

// The same from the tiles of its gradient.
extern "C" __global__ void gradient_squares(
    const Outer *all, const double *sums, const float *lengths, const u32 *examples, u32 count, u32 most, u32 rows,
    double *into) {
    u32 example = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (example >= count) return;
    Outer o = all[blockIdx.y];
    double square = 0, size = 0, length = 0;
    for (u32 tile = lane; tile < most; tile += 32) {
        square += sums[((u64)blockIdx.y * count + example) * most + tile];
    }
    for (u32 t = lane; t < examples[2 * example + 1]; t += 32) {
        const float *of_row = lengths + 2 * ((u64)blockIdx.y * rows + examples[2 * example] + t);
        double both = (double)of_row[0] * of_row[1];
        size += both;
        length += sqrt(both);
    }
    square = warp_total(square), size = warp_total(size), length = warp_total(length);
    double lost = SMALLEST * o.outputs * o.inputs;
    // Errors of a gradient's elements are relative to the root of D.
    double norm = sqrt(square + lost) + 1e-6 * sqrt(size) + o.slack * length;
    if (lane == 0) into[(u64)o.entry * count + example] = norm * norm;
}

// Rows that are examples' gradients themselves.
struct Rows {
    Numbers x;
    u64 first;
    u32 stride, cols, entry, unused;
};

// The square of each row, in some columns; a warp does one.
extern "C" __global__ void row_squares(const Rows *all, u32 count, double *into) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= count) return;
    Rows o = all[blockIdx.y];
    double sum = 0;
    for (u32 i = lane; i < o.cols; i += 32) {
        double x = get(o.x, o.first + (u64)row * o.stride + i);
        sum += x * x;
    }
    sum = warp_total(sum);
    if (lane == 0) into[(u64)o.entry * count + row] = sum;
}

// A row of sums of the rows of x, each with a factor.
struct Weighted {
    Numbers into, x;
    u64 first;
    const float *factors;
    u32 stride, cols;
};

// into = sum over rows of factor * row, in some columns; a factor of zero leaves a row out. Blocks of 32 columns by
// 8 rows.
extern "C" __global__ void __launch_bounds__(256) weighted_rows(const Weighted *all, u32 rows) {
    __shared__ float sums[8][32];
    Weighted o = all[blockIdx.y];
    u32 across = threadIdx.x % 32, down = threadIdx.x / 32, column = blockIdx.x * 32 + across;
    if (blockIdx.x * 32 >= o.cols) return;
    float sum = 0.f;
    for (u32 row = down; column < o.cols && row < rows; row += 8) {
        float factor = o.factors[row];
        if (factor != 0.f) sum = fmaf(factor, get(o.x, o.first + (u64)row * o.stride + column), sum);
    }
    sums[down][across] = sum;
    __syncthreads();
    if (down > 0 || column >= o.cols) return;
    for (int k = 1; k < 8; k++) sum += sums[k][across];
    put(o.into, column, sum);
}

// into += the sum of parts, of something that may be longer by a share; one block.
extern "C" __global__ void add_squares(double *into, const double *parts, u32 count, float share) {
    double sum = 0;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
    sum = block_total(sum);
    if (threadIdx.x == 0) *into += sum * (1. + share) * (1. + share);
}

// into = squares * factor^2, where the factor is on the device, if there is one.
extern "C" __global__ void scale_squares(double *into, const double *squares, Numbers factor, u32 count) {
    double by = factor.start ? get(factor, 0) : 1.f;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) into[i] = squares[i] * by * by;
}
