/*
 * test_load_changes.c: a checkpoint that is cut, overwritten or replaced by another program
 * while it is being loaded, at every read. Loading gives the old checkpoint, or an error that
 * names the file and leaves the optimizer as it was: no signal, and never a mixture.
 */
#include "checkpoint_model.h"

#include <fcntl.h>
#include <unistd.h>

#include "checkpoint/file.h"

enum { PIECE = 512 }; /* many reads, hence many moments */

static struct {
    struct mu_file_system real;
    char path[80], other[80];
    bytes old_file, new_file; /* what is being loaded, and what may come in its place */
    long calls, at;
    void (*change)(size_t place);
    size_t place;
} scene;

static void put_file(const char *path, const bytes *from)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, from->data, from->count), from->count);
    assert_int_equal(close(file), 0);
}

/* ---- what others do to the file ---- */

static void overwrite(size_t first, const void *data, size_t count)
{
    int file = open(scene.path, O_WRONLY);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, data, count, (off_t)first), count);
    assert_int_equal(close(file), 0);
}

static void cut_at(size_t place)
{
    assert_int_equal(truncate(scene.path, (off_t)place), 0);
}

static void cut_and_grow(size_t place)
{
    cut_at(place);
    cut_at(scene.old_file.count); /* zeros from there on */
}

static void flip_bit(size_t place)
{
    unsigned char byte = scene.old_file.data[place] ^ 0x10;
    overwrite(place, &byte, 1);
}

/* Another checkpoint, of the same size, is written over this one, up to or from a place. */
static void overwrite_front(size_t place)
{
    overwrite(0, scene.new_file.data, place);
}

static void overwrite_back(size_t place)
{
    overwrite(place, scene.new_file.data + place, scene.new_file.count - place);
}

static void append(size_t place)
{
    overwrite(scene.old_file.count, scene.new_file.data, place + 1);
}

static void replace(size_t place)
{
    (void)place;
    put_file(scene.other, &scene.new_file);
    assert_int_equal(rename(scene.other, scene.path), 0);
}

static void remove_it(size_t place)
{
    (void)place;
    assert_int_equal(unlink(scene.path), 0);
}

static const struct {
    const char *name;
    void (*change)(size_t place);
    bool harmless; /* an open file goes on to be what it was */
} changes[] = {
    {"cut", cut_at, false},
    {"cut and grown again", cut_and_grow, false},
    {"a bit flipped", flip_bit, false},
    {"another written over its front", overwrite_front, false},
    {"another written over its back", overwrite_back, false},
    {"appended to", append, true},
    {"replaced", replace, true},
    {"removed", remove_it, true},
};

static ssize_t changing_pread(int file, void *buffer, size_t count, off_t offset)
{
    if (++scene.calls == scene.at) {
        scene.change(scene.place);
    }
    return scene.real.pread(file, buffer, count < PIECE ? count : PIECE, offset);
}

/* Load while `change` happens at read number `at`; what comes of it. */
static muonium_status load_during(model *m, size_t change, long at, size_t place)
{
    put_file(scene.path, &scene.old_file);
    scene.calls = 0;
    scene.at = at;
    scene.change = changes[change].change;
    scene.place = place;
    mu_file_system.pread = changing_pread;
    muonium_status status = muonium_load(m->optimizer, scene.path);
    mu_file_system = scene.real;
    return status;
}

static void test_changes_during_a_load(void **unused)
{
    static model m;
    size_t loaded = 0, refused = 0;
    (void)unused;
    create_stepped(&m, NULL, 0, MODEL_PARAMETERS);
    scene.old_file = model_state(&m);
    assert_ok(model_steps(&m, 2, 3));
    scene.new_file = model_state(&m);
    assert_ok(model_steps(&m, 3, 4));
    bytes before = model_state(&m);
    size_t size = scene.old_file.count;
    assert_int_equal(size, scene.new_file.count);

    assert_ok(load_during(&m, 0, 0, 0));
    long reads = scene.calls;
    assert_true(reads > 10);
    assert_ok(model_load(&m, &before));
    for (size_t c = 0; c < sizeof changes / sizeof changes[0]; c++) {
        for (long at = 1; at <= reads; at++) {
            for (size_t place = (size_t)at % 7; place < size; place += size / 13) {
                muonium_status status = load_during(&m, c, at, place);
                bytes after = model_state(&m);
                if (status == MUONIUM_OK) {
                    bool new_one = !changes[c].harmless && bytes_equal(&after, &scene.new_file);
                    assert_true(new_one || bytes_equal(&after, &scene.old_file));
                    assert_ok(model_load(&m, &before));
                    loaded++;
                } else {
                    assert_false(changes[c].harmless);
                    assert_true(status == MUONIUM_IO || status == MUONIUM_FORMAT);
                    assert_non_null(strstr(muonium_last_error(), scene.path));
                    assert_true(bytes_equal(&after, &before));
                    refused++;
                }
                bytes_free(&after);
            }
        }
    }
    printf("changes during a load: %zu, of which %zu were refused by name and %zu came too late\n",
           loaded + refused, refused, loaded);
    assert_true(refused > 100 && loaded > 100);
    bytes_free(&scene.old_file);
    bytes_free(&scene.new_file);
    bytes_free(&before);
    model_destroy(&m);
}

int main(void)
{
    char directory[64];
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_changes_during_a_load)};
    snprintf(directory, sizeof directory, "%s/muonium-load-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"); /* memory, if there is any */
    if (mkdtemp(directory) == NULL) {
        return 1;
    }
    snprintf(scene.path, sizeof scene.path, "%s/state", directory);
    snprintf(scene.other, sizeof scene.other, "%s/other", directory);
    scene.real = mu_file_system;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(scene.path);
    rmdir(directory);
    return failed;
}
