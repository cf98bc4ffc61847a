/*
 * stream.c: the order in which pieces travel. The parts of one owner form one stream of bytes,
 * cut into slabs of equal length; round k carries slab k of every stream. The streams are of
 * similar length, so that every round is balanced, however large single matrices are, and no
 * count exceeds the limit of an MPI call.
 */
#include "mpi/distributed.h"

#include <string.h>

#include "base/half.h"
#include "optimizer/schedule.h"

enum { WORD = 4 };

muonium_dtype mu_wire_type(const muonium_mpi *d, size_t part, bool gradients)
{
    const mu_parameter *p = d->description->parameters[d->plan->parts[part].piece.parameter];
    muonium_dtype type = gradients ? p->grad_dtype : p->tensor.dtype;
    bool halve = gradients ? d->options.half_gradients : d->options.half_updates;
    return type == MUONIUM_F32 && halve ? MUONIUM_BF16 : type;
}

static size_t data_bytes(const muonium_mpi *d, size_t part, bool gradients)
{
    return d->plan->parts[part].elements * muonium_dtype_size(mu_wire_type(d, part, gradients));
}

static size_t head_bytes(bool gradients)
{
    return gradients ? WORD : 0;
}

size_t mu_stream_bytes(const mu_stream *stream)
{
    return stream->at[stream->count];
}

/* Gradients travel in the order in which a backward pass makes them. */
static void fill_streams(const muonium_mpi *d, mu_streams *s)
{
    const muonium_mpi_plan *plan = d->plan;
    for (size_t i = 0; i < plan->count; i++) {
        size_t part = s->gradients ? plan->count - 1 - i : i;
        mu_stream *to = &s->of[plan->parts[part].piece.owner];
        size_t bytes = head_bytes(s->gradients) + data_bytes(d, part, s->gradients);
        to->parts[to->count] = part;
        to->at[to->count + 1] = to->at[to->count] + mu_round_up(bytes, WORD);
        to->count++;
    }
}

muonium_status mu_streams_make(const muonium_mpi *d, bool gradients, mu_streams *streams)
{
    const muonium_mpi_plan *plan = d->plan;
    size_t ranks = (size_t)d->ranks, longest = 0, total = 0;
    *streams = (mu_streams){.gradients = gradients};
    streams->of = mu_alloc_zeroed(ranks * sizeof *streams->of);
    streams->memory = mu_alloc_zeroed((2 * plan->count + ranks) * sizeof *streams->memory);
    if (!streams->of || !streams->memory) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory to order %zu pieces", plan->count);
    }
    size_t *room = streams->memory;
    for (size_t r = 0; r < ranks; r++) {
        streams->of[r].parts = room;
        streams->of[r].at = room + plan->loads[r].pieces;
        room += 2 * plan->loads[r].pieces + 1;
    }
    fill_streams(d, streams);
    for (size_t r = 0; r < ranks; r++) {
        size_t bytes = mu_stream_bytes(&streams->of[r]);
        longest = bytes > longest ? bytes : longest;
        total += bytes;
    }
    /* The bytes that one rank receives in a round must fit into one call. No bucket is larger
     * than the whole. */
    size_t most = d->options.chunk_bytes / ranks, wanted = d->options.bucket_bytes / ranks;
    wanted = wanted < total / ranks ? wanted : total / ranks;
    size_t slab = wanted < 4096 ? 4096 : wanted;
    slab = slab < most ? slab : most;
    streams->slab = slab < WORD ? WORD : slab / WORD * WORD;
    streams->rounds = (longest + streams->slab - 1) / streams->slab;
    return MUONIUM_OK;
}

void mu_streams_free(mu_streams *streams)
{
    mu_free(streams->of);
    mu_free(streams->memory);
    *streams = (mu_streams){0};
}

void mu_round_range(const mu_streams *streams, size_t round, int owner, size_t *from, size_t *to)
{
    size_t bytes = mu_stream_bytes(&streams->of[owner]);
    *from = round * streams->slab < bytes ? round * streams->slab : bytes;
    *to = bytes - *from < streams->slab ? bytes : *from + streams->slab;
}

/* The part that contains a byte of a stream. */
static size_t part_of_byte(const mu_stream *stream, size_t byte)
{
    size_t low = 0, high = stream->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (stream->at[middle] <= byte) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

bool mu_next_span(const muonium_mpi *d, const mu_streams *streams, int owner, size_t origin,
                  size_t *from, size_t to, mu_span *run)
{
    const mu_stream *stream = &streams->of[owner];
    if (*from >= to) {
        return false;
    }
    size_t index = part_of_byte(stream, *from), part = stream->parts[index];
    size_t begin = stream->at[index], data = begin + head_bytes(streams->gradients);
    size_t end = data + data_bytes(d, part, streams->gradients);
    size_t width = muonium_dtype_size(mu_wire_type(d, part, streams->gradients));
    size_t first = *from > data ? *from : data, last = to < end ? to : end;
    *run = (mu_span){
        .part = part,
        .index = index,
        .starts = *from == begin,
        .word = *from - origin,
        .bytes = first - origin,
        .first = (first - data) / width,
        .count = last > first ? (last - first) / width : 0,
    };
    *from = stream->at[index + 1] < to ? stream->at[index + 1] : to;
    return true;
}

/* ---- elements ---- */

/* Some elements of a part with one stride in the parameter and one in its gradient. */
static mu_piece piece_of(const muonium_mpi *d, const mu_span *run, size_t done)
{
    const muonium_mpi_piece *part = &d->plan->parts[run->part].piece;
    const mu_parameter *p = d->description->parameters[part->parameter];
    size_t at = run->first + done, row = at / part->run, col = at % part->run;
    size_t left = part->run - col, most = run->count - done;
    mu_offset start = {0, 0, 0};
    most = most < left ? most : left;
    return mu_piece_at(p, start, &p->all, part->first + row * part->stride + col, most);
}

/* Convert a row of elements, consecutive or not, to another type. */
static void convert(const muonium_mpi *d, mu_block from, mu_block to)
{
    float buffer[MU_PIECE];
    size_t from_bytes = muonium_dtype_size(from.dtype), to_bytes = muonium_dtype_size(to.dtype);
    if (from.dtype == to.dtype && from.col_stride == 1 && to.col_stride == 1) {
        memcpy(to.data, from.data, from.cols * from_bytes);
        return;
    }
    for (size_t done = 0, count = from.cols; done < count;) {
        from.cols = to.cols = count - done < MU_PIECE ? count - done : MU_PIECE;
        d->rows->load(&from, buffer, from.cols);
        d->rows->store(buffer, to.cols, &to);
        from.data = (char *)from.data + (ptrdiff_t)(from.cols * from_bytes) * from.col_stride;
        to.data = (char *)to.data + (ptrdiff_t)(to.cols * to_bytes) * to.col_stride;
        done += from.cols;
    }
}

static mu_block row_of(const void *data, muonium_dtype type, ptrdiff_t stride, size_t count)
{
    mu_block row = {(void *)(uintptr_t)data, type, stride, stride, 1, count};
    return row;
}

void mu_pack_gradient(const muonium_mpi *d, const mu_span *run, muonium_dtype type, void *to)
{
    const mu_parameter *p = d->description->parameters[d->plan->parts[run->part].piece.parameter];
    size_t bytes = muonium_dtype_size(type);
    for (size_t done = 0; done < run->count;) {
        mu_piece piece = piece_of(d, run, done);
        convert(d, row_of(piece.grad, p->grad_dtype, piece.grad_stride, piece.count),
                row_of((char *)to + done * bytes, type, 1, piece.count));
        done += piece.count;
    }
}

void mu_pack_data(const muonium_mpi *d, const mu_span *run, muonium_dtype type, void *to)
{
    const mu_parameter *p = d->description->parameters[d->plan->parts[run->part].piece.parameter];
    size_t bytes = muonium_dtype_size(type);
    for (size_t done = 0; done < run->count;) {
        mu_piece piece = piece_of(d, run, done);
        convert(d, row_of(piece.data, p->tensor.dtype, piece.data_stride, piece.count),
                row_of((char *)to + done * bytes, type, 1, piece.count));
        done += piece.count;
    }
}

void mu_unpack_data(const muonium_mpi *d, const mu_span *run, muonium_dtype type, const void *from)
{
    const mu_parameter *p = d->description->parameters[d->plan->parts[run->part].piece.parameter];
    size_t bytes = muonium_dtype_size(type);
    for (size_t done = 0; done < run->count;) {
        mu_piece piece = piece_of(d, run, done);
        convert(d, row_of((const char *)from + done * bytes, type, 1, piece.count),
                row_of(piece.data, p->tensor.dtype, piece.data_stride, piece.count));
        done += piece.count;
    }
}

void mu_add_change(const muonium_mpi *d, const mu_span *run, const uint16_t *change,
                   const float *before)
{
    for (size_t done = 0; done < run->count;) {
        mu_piece piece = piece_of(d, run, done);
        float *data = (float *)(void *)piece.data;
        for (size_t i = 0; i < piece.count; i++) {
            float *element = &data[(ptrdiff_t)i * piece.data_stride];
            float was = before ? before[done + i] : *element;
            *element = was + mu_f32_from_bf16(change[done + i]);
        }
        done += piece.count;
    }
}
