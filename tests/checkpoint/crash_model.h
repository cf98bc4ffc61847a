/*
 * crash_model.h: the file operations of a run, recorded, and every state in which a power
 * failure may leave the disk between two of them, as far as POSIX allows it:
 *
 *   - of data that no fsync covers, every block is there or lost on its own, so that any
 *     part and any order is covered; a lost block holds zeros or what the disk had there
 *     before, and the file may end at any block;
 *   - of names that no fsync of their directory covers, every change is there or lost on its
 *     own; a rename is atomic for the name that it replaces, but the old name may stay.
 *
 * That a missing fsync would be noticed is shown by leaving each of them out of the record.
 */
#ifndef MUONIUM_CRASH_MODEL_H
#define MUONIUM_CRASH_MODEL_H

#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/file.h"

enum {
    OPERATIONS = 256,
    INODES = 16,
    ENTRIES = 16,
    NAME = 64,
    DIRECTORIES = 2,
    DESCRIPTORS = 1024,
    LARGEST = 1 << 14
};

typedef struct content {
    unsigned char bytes[LARGEST];
    size_t count;
    bool exists;
} content;

/* ---- recording ---- */

typedef enum action { CREATE, WRITE, SYNC, RENAME, UNLINK, SYNC_DIRECTORY } action;

typedef struct operation {
    action kind;
    int directory; /* of names */
    int inode;
    size_t end; /* WRITE: the size of the file after it */
    char name[NAME], to[NAME];
} operation;

typedef struct entry {
    int directory, inode;
    char name[NAME];
} entry;

/* The names that there are. */
typedef struct tree {
    entry entries[ENTRIES];
    size_t count;
} tree;

static struct {
    struct mu_file_system real;
    size_t block; /* bytes that reach the disk as one */
    char directories[DIRECTORIES][NAME];
    operation operations[OPERATIONS];
    size_t count;
    content inodes[INODES];
    size_t inode_count;
    tree before;
    int inode_of[DESCRIPTORS], directory_of[DESCRIPTORS]; /* by descriptor; -1: none */
} record;

static int find_directory(const char *path)
{
    struct stat wanted, found;
    for (int i = 0; i < DIRECTORIES; i++) {
        if (stat(path, &wanted) == 0 && stat(record.directories[i], &found) == 0 &&
            wanted.st_ino == found.st_ino && wanted.st_dev == found.st_dev) {
            return i;
        }
    }
    return -1;
}

static operation *add(action kind)
{
    assert_true(record.count < OPERATIONS);
    operation *added = &record.operations[record.count++];
    *added = (operation){.kind = kind};
    return added;
}

static void name_entry(char to[NAME], const char *name)
{
    assert_true(strlen(name) < NAME);
    strcpy(to, name);
}

static int recorded_openat(int at, const char *path, int flags, mode_t mode)
{
    int file = record.real.openat(at, path, flags, mode);
    if (file < 0) {
        return file;
    }
    assert_true(file < DESCRIPTORS);
    record.inode_of[file] = record.directory_of[file] = -1;
    if ((flags & O_DIRECTORY) != 0) {
        record.directory_of[file] = find_directory(path);
    } else if ((flags & O_CREAT) != 0) {
        assert_true(record.inode_count < INODES && record.directory_of[at] >= 0);
        operation *created = add(CREATE);
        created->directory = record.directory_of[at];
        created->inode = record.inode_of[file] = (int)record.inode_count++;
        record.inodes[created->inode].count = 0;
        name_entry(created->name, path);
    }
    return file;
}

static ssize_t recorded_write(int file, const void *data, size_t bytes)
{
    content *inode = &record.inodes[record.inode_of[file]];
    size_t piece = record.block - inode->count % record.block;
    ssize_t put = record.real.write(file, data, piece < bytes ? piece : bytes);
    assert_true(put > 0 && inode->count + (size_t)put <= LARGEST);
    memcpy(inode->bytes + inode->count, data, (size_t)put);
    inode->count += (size_t)put;
    operation *written = add(WRITE);
    written->inode = record.inode_of[file];
    written->end = inode->count;
    return put;
}

static int recorded_fsync(int file)
{
    bool is_directory = record.directory_of[file] >= 0;
    operation *synced = add(is_directory ? SYNC_DIRECTORY : SYNC);
    synced->directory = record.directory_of[file];
    synced->inode = record.inode_of[file];
    return 0;
}

static int recorded_renameat(int from, const char *old_path, int to, const char *new_path)
{
    assert_int_equal(from, to);
    operation *renamed = add(RENAME);
    renamed->directory = record.directory_of[from];
    name_entry(renamed->name, old_path);
    name_entry(renamed->to, new_path);
    return record.real.renameat(from, old_path, to, new_path);
}

static int recorded_unlinkat(int at, const char *path, int flags)
{
    operation *removed = add(UNLINK);
    removed->directory = record.directory_of[at];
    name_entry(removed->name, path);
    return record.real.unlinkat(at, path, flags);
}

static int no_fsync(int file)
{
    (void)file;
    return 0;
}

/* ---- files ---- */

static const char *join(int directory, const char *name)
{
    static char path[4][2 * NAME];
    static unsigned next;
    char *made = path[next++ % 4];
    assert_true(strlen(name) < NAME);
    snprintf(made, 2 * NAME, "%s/%.*s", record.directories[directory], NAME - 1, name);
    return made;
}

static void put_file(const char *path, const void *bytes, size_t count)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes, count), count);
    assert_int_equal(close(file), 0);
}

static void get_file(const char *path, content *into)
{
    int file = open(path, O_RDONLY);
    into->count = 0;
    into->exists = file >= 0;
    if (into->exists) {
        ssize_t got = read(file, into->bytes, LARGEST);
        assert_true(got >= 0 && got < LARGEST);
        into->count = (size_t)got;
        close(file);
    }
}

static bool equal(const content *a, const content *b)
{
    return a->exists == b->exists && a->count == b->count &&
           memcmp(a->bytes, b->bytes, a->count) == 0;
}

static void restore(const char *path, const content *from)
{
    unlink(path);
    if (from->exists) {
        put_file(path, from->bytes, from->count);
    }
}

static void visit_files(void (*visit)(int directory, const char *name))
{
    for (int d = 0; d < DIRECTORIES; d++) {
        DIR *listing = opendir(record.directories[d]);
        assert_non_null(listing);
        for (struct dirent *item; (item = readdir(listing)) != NULL;) {
            if (item->d_name[0] != '.') {
                visit(d, item->d_name);
            }
        }
        closedir(listing);
    }
}

static void remove_file(int directory, const char *name)
{
    assert_int_equal(unlink(join(directory, name)), 0);
}

static void note_file(int directory, const char *name)
{
    assert_true(record.before.count < ENTRIES && record.inode_count < INODES);
    entry *noted = &record.before.entries[record.before.count++];
    *noted = (entry){.directory = directory, .inode = (int)record.inode_count++};
    name_entry(noted->name, name);
    get_file(join(directory, name), &record.inodes[noted->inode]);
}

/* Record `run`, which starts from the files that there are. */
static void record_run(size_t block, bool (*run)(void))
{
    record.block = block;
    record.count = record.inode_count = record.before.count = 0;
    visit_files(note_file);
    mu_file_system.openat = recorded_openat;
    mu_file_system.write = recorded_write;
    mu_file_system.fsync = recorded_fsync;
    mu_file_system.renameat = recorded_renameat;
    mu_file_system.unlinkat = recorded_unlinkat;
    bool done = run();
    mu_file_system = record.real;
    mu_file_system.fsync = no_fsync; /* judging needs no disk */
    assert_true(done);
}

/* ---- all disks ---- */

/* What the disk has of a file: `length` bytes, of which the blocks in `there`, by bit, after
 * the first `durable` bytes hold what was written. */
typedef struct variant {
    size_t length, durable;
    uint64_t there;
    bool stale; /* the others hold bytes from before, else zeros */
} variant;

typedef struct crash {
    size_t cut;   /* operations before it */
    int left_out; /* of the syncs, which did not happen; -1: none */
    bool (*judge)(bool returned);
    bool only_first; /* bad state is wanted */
    size_t states, bad;
    variant variants[INODES];
} crash;

static entry *find(tree *t, int directory, const char *name)
{
    for (size_t i = 0; i < t->count; i++) {
        if (t->entries[i].directory == directory && strcmp(t->entries[i].name, name) == 0) {
            return &t->entries[i];
        }
    }
    return NULL;
}

static void unname(tree *t, int directory, const char *name)
{
    entry *found = find(t, directory, name);
    if (found) {
        *found = t->entries[--t->count];
    }
}

static void name_inode(tree *t, int directory, const char *name, int inode)
{
    unname(t, directory, name);
    assert_true(t->count < ENTRIES);
    entry *added = &t->entries[t->count++];
    *added = (entry){.directory = directory, .inode = inode};
    name_entry(added->name, name);
}

/* The inode of a temporary that is renamed, whether or not its first name is on the disk. */
static int inode_named(const char *name, int directory)
{
    for (size_t i = 0; i < record.count; i++) {
        const operation *o = &record.operations[i];
        if (o->kind == CREATE && o->directory == directory && strcmp(o->name, name) == 0) {
            return o->inode;
        }
    }
    fail_msg("%s was never created", name);
    return -1;
}

typedef enum extent { LOST, DONE, BOTH_NAMES, EXTENTS } extent;

static void apply(tree *t, const operation *o, extent how)
{
    if (how == LOST) {
        return;
    }
    if (o->kind == CREATE) {
        name_inode(t, o->directory, o->name, o->inode);
    } else if (o->kind == UNLINK) {
        unname(t, o->directory, o->name);
    } else {
        if (how == DONE) {
            unname(t, o->directory, o->name);
        }
        name_inode(t, o->directory, o->to, inode_named(o->name, o->directory));
    }
}

static bool happened(const crash *c, size_t at, action kind)
{
    return at < c->cut && record.operations[at].kind == kind && (int)at != c->left_out;
}

static bool is_certain(const crash *c, size_t at)
{
    for (size_t i = at + 1; i < c->cut; i++) {
        if (happened(c, i, SYNC_DIRECTORY) &&
            record.operations[i].directory == record.operations[at].directory) {
            return true;
        }
    }
    return false;
}

static void make_disk(const crash *c, const tree *t)
{
    static unsigned char bytes[LARGEST];
    visit_files(remove_file);
    for (size_t i = 0; i < t->count; i++) {
        const entry *e = &t->entries[i];
        const variant *v = &c->variants[e->inode];
        memset(bytes, 0, v->length);
        for (size_t at = 0; at < v->length; at++) {
            size_t block = at < v->durable ? 0 : (at - v->durable) / record.block;
            bool there = at < v->durable || (v->there >> block & 1) != 0;
            /* Before, the place belonged to the first file of the record, which is the worst:
             * to an older checkpoint, where there is one. */
            bytes[at] = there      ? record.inodes[e->inode].bytes[at]
                        : v->stale ? record.inodes[0].bytes[at]
                                   : 0;
        }
        put_file(join(e->directory, e->name), bytes, v->length);
    }
}

static void judge_disk(crash *c, const tree *t)
{
    make_disk(c, t);
    c->states++;
    if (!c->judge(c->cut == record.count)) {
        c->bad++;
        if (c->left_out < 0) {
            fprintf(stderr, "bad state after %zu of %zu operations\n", c->cut, record.count);
        }
    }
}

static bool enough(const crash *c)
{
    return c->only_first && c->bad > 0;
}

static bool is_named(const tree *t, size_t inode)
{
    for (size_t i = 0; i < t->count; i++) {
        if (t->entries[i].inode == (int)inode) {
            return true;
        }
    }
    return false;
}

/* Every content of every file from inode number `at` on. */
static void vary_contents(crash *c, const tree *t, size_t at)
{
    if (at == record.inode_count) {
        judge_disk(c, t);
        return;
    }
    size_t durable = at < record.before.count ? record.inodes[at].count : 0, written = durable;
    for (size_t i = 0; i < c->cut; i++) {
        const operation *o = &record.operations[i];
        written = o->kind == WRITE && o->inode == (int)at ? o->end : written;
        durable = happened(c, i, SYNC) && o->inode == (int)at ? written : durable;
    }
    variant *v = &c->variants[at];
    *v = (variant){.length = durable, .durable = durable};
    vary_contents(c, t, at + 1);
    size_t blocks = (written - durable + record.block - 1) / record.block;
    for (size_t count = 1; count <= blocks && is_named(t, at); count++) {
        uint64_t all = (UINT64_C(1) << count) - 1;
        size_t end = durable + count * record.block;
        for (uint64_t there = 0; there <= all && !enough(c); there++) {
            for (int stale = 0; stale < (there < all ? 2 : 1); stale++) {
                *v = (variant){end < written ? end : written, durable, there, stale == 1};
                vary_contents(c, t, at + 1);
            }
        }
    }
}

/* Every fate of the names that operations from number `at` on change. */
static void vary_names(crash *c, const tree *t, size_t at)
{
    for (; at < c->cut; at++) {
        action kind = record.operations[at].kind;
        if (kind == CREATE || kind == RENAME || kind == UNLINK) {
            break;
        }
    }
    if (at == c->cut) {
        vary_contents(c, t, 0);
        return;
    }
    bool certain = is_certain(c, at), rename = record.operations[at].kind == RENAME;
    for (extent how = LOST; how < EXTENTS && !enough(c); how++) {
        if ((how == DONE) || (!certain && (how == LOST || rename))) {
            tree changed = *t;
            apply(&changed, &record.operations[at], how);
            vary_names(c, &changed, at + 1);
        }
    }
}

/* From the end on, where a missing sync shows first. */
static crash enumerate(bool (*judge)(bool returned), int left_out)
{
    crash c = {.left_out = left_out, .judge = judge, .only_first = left_out >= 0};
    for (size_t cut = record.count + 1; cut-- > 0 && !enough(&c);) {
        c.cut = cut;
        vary_names(&c, &record.before, 0);
    }
    return c;
}

static size_t all_states; /* of all scenarios */

static void check_scenario(const char *name, bool (*judge)(bool returned))
{
    crash whole = enumerate(judge, -1);
    size_t syncs = 0, noticed = 0;
    for (size_t i = 0; i < record.count; i++) {
        action kind = record.operations[i].kind;
        if (kind == SYNC || kind == SYNC_DIRECTORY) {
            crash without = enumerate(judge, (int)i);
            syncs++;
            noticed += without.bad > 0;
            if (without.bad == 0) {
                fprintf(stderr, "%s: leaving out sync %zu, operation %zu, goes unnoticed\n", name,
                        syncs, i);
            }
        }
    }
    printf("crash model: %s: %zu operations, %zu states, %zu bad; %zu of %zu syncs left out are "
           "noticed\n",
           name, record.count, whole.states, whole.bad, noticed, syncs);
    all_states += whole.states;
    assert_int_equal(whole.bad, 0);
    assert_int_equal(noticed, syncs);
}

#endif
