/*
 * test_atomic_file.c: writing safetensors files to paths. Every system call is
 * made to fail in turn, with several errors: the path holds the old file or the
 * new one, whole, and nothing else is left in the directory.
 */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/file.h"
#include "checkpoint/safetensors.h"

/* ---- a file system with faults ---- */

static struct {
    struct mu_file_system real;
    int calls;
    int fail_at;     /* this call, counted from 1, fails; 0: none */
    bool persistent; /* and all after it */
    int code;        /* with this errno */
    int open_files;
    bool renamed;     /* since the last injection */
    int syncs[2];     /* before the rename, and after */
    size_t piece;     /* most bytes that one read or write moves; 0: all */
    const char *name; /* of the call that failed last */
} fault;

static bool fails(const char *name)
{
    fault.calls++;
    bool now = fault.fail_at > 0 &&
               (fault.calls == fault.fail_at || (fault.persistent && fault.calls > fault.fail_at));
    if (now) {
        fault.name = name;
        errno = fault.code;
    }
    return now;
}

static int faulty_openat(int directory, const char *path, int flags, mode_t mode)
{
    int file = fails("openat") ? -1 : fault.real.openat(directory, path, flags, mode);
    fault.open_files += file >= 0 ? 1 : 0;
    return file;
}

static int faulty_fstat(int file, struct stat *status)
{
    return fails("fstat") ? -1 : fault.real.fstat(file, status);
}

static int faulty_fstatat(int directory, const char *path, struct stat *status, int flags)
{
    return fails("fstatat") ? -1 : fault.real.fstatat(directory, path, status, flags);
}

static ssize_t faulty_readlink(const char *path, char *target, size_t bytes)
{
    return fails("readlink") ? -1 : fault.real.readlink(path, target, bytes);
}

static size_t shortened(size_t bytes)
{
    return fault.piece > 0 && bytes > fault.piece ? fault.piece : bytes;
}

static ssize_t faulty_pread(int file, void *buffer, size_t bytes, off_t offset)
{
    return fails("pread") ? -1 : fault.real.pread(file, buffer, shortened(bytes), offset);
}

static ssize_t faulty_write(int file, const void *data, size_t bytes)
{
    return fails("write") ? -1 : fault.real.write(file, data, shortened(bytes));
}

static int faulty_fchmod(int file, mode_t mode)
{
    return fails("fchmod") ? -1 : fault.real.fchmod(file, mode);
}

static int faulty_fsync(int file)
{
    fault.syncs[fault.renamed ? 1 : 0]++;
    return fails("fsync") ? -1 : fault.real.fsync(file);
}

/* As on Linux, a close that fails has closed. */
static int faulty_close(int file)
{
    int result = fault.real.close(file);
    fault.open_files -= result == 0 ? 1 : 0;
    return fails("close") ? -1 : result;
}

static int faulty_renameat(int from, const char *old_path, int to, const char *new_path)
{
    int result = fails("renameat") ? -1 : fault.real.renameat(from, old_path, to, new_path);
    fault.renamed = fault.renamed || result == 0;
    return result;
}

/* Removal never fails here: what else could a failing cleanup do? */
static int real_unlinkat(int directory, const char *path, int flags)
{
    return fault.real.unlinkat(directory, path, flags);
}

static const struct mu_file_system faulty = {
    faulty_openat, faulty_fstat, faulty_fstatat, faulty_readlink, faulty_pread,  faulty_write,
    faulty_fchmod, faulty_fsync, faulty_close,   faulty_renameat, real_unlinkat,
};

static void inject(int fail_at, int code, bool persistent)
{
    fault.calls = 0;
    fault.fail_at = fail_at;
    fault.code = code;
    fault.persistent = persistent;
    fault.piece = 0;
    fault.renamed = false;
    fault.syncs[0] = fault.syncs[1] = 0;
    fault.name = "none";
}

/* ---- a directory of our own ---- */

static char directory[64];
static char path[128];

static int set_up(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/muonium-test-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/file.safetensors", directory);
    fault.real = mu_file_system;
    fault.open_files = 0;
    inject(0, 0, false);
    mu_file_system = faulty;
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    mu_file_system = fault.real;
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

static int files_in_directory(void)
{
    int count = 0;
    DIR *listing = opendir(directory);
    assert_non_null(listing);
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        count += strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0 ? 1 : 0;
    }
    closedir(listing);
    return count;
}

/* ---- files with a recognisable content ---- */

enum { BYTES = 1000 };

static muonium_status save(const char *to, unsigned char content)
{
    unsigned char data[BYTES];
    muonium_writer *writer = NULL;
    memset(data, content, sizeof data);
    muonium_status status = muonium_writer_create(&writer);
    if (status == MUONIUM_OK) {
        status = muonium_writer_add(writer, "w", "U8", 1, (uint64_t[]){BYTES});
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_begin(writer, to);
    }
    for (size_t i = 0; status == MUONIUM_OK && i < BYTES; i += BYTES / 4) {
        status = muonium_writer_data(writer, data + i, BYTES / 4);
    }
    if (status == MUONIUM_OK) {
        status = muonium_writer_finish(writer);
    }
    muonium_writer_destroy(writer);
    return status;
}

static muonium_status load(const char *from, unsigned char *content)
{
    unsigned char data[BYTES];
    muonium_reader *reader = NULL;
    muonium_status status = muonium_reader_open(from, &reader);
    if (status == MUONIUM_OK) {
        status = muonium_reader_read(reader, muonium_reader_find(reader, "w"), 0, data, BYTES);
    }
    muonium_reader_close(reader);
    if (status == MUONIUM_OK) {
        *content = data[0];
        for (size_t i = 1; i < BYTES; i++) {
            assert_int_equal(data[i], data[0]);
        }
    }
    return status;
}

/* The content of a file that must be whole. */
static unsigned char content_of(const char *from)
{
    unsigned char content = 0;
    struct mu_file_system used = mu_file_system;
    mu_file_system = fault.real;
    assert_ok(load(from, &content));
    mu_file_system = used;
    return content;
}

static mode_t mode_of(const char *of)
{
    struct stat status;
    assert_int_equal(stat(of, &status), 0);
    return status.st_mode & 07777;
}

/* ---- tests ---- */

static void test_save_and_replace(void **state)
{
    (void)state;
    mode_t mask = umask(027);
    assert_ok(save(path, 1));
    umask(mask);
    assert_int_equal(content_of(path), 1);
    assert_int_equal(mode_of(path), 0640);
    assert_int_equal(chmod(path, 0604), 0);
    assert_ok(save(path, 2));
    assert_int_equal(content_of(path), 2);
    assert_int_equal(mode_of(path), 0604);
    assert_int_equal(files_in_directory(), 1);
    assert_int_equal(fault.open_files, 0);
}

/* Permissions are copied; the bits that lend an identity are not. */
static void test_permissions(void **state)
{
    static const mode_t modes[] = {0644, 0600, 0755, 0444, 06755, 04711, 02770, 01666, 07777};
    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_ok(save(path, 1));
        assert_int_equal(chmod(path, modes[i]), 0);
        mode_t mask = umask(077); /* for new files alone */
        assert_ok(save(path, 2));
        umask(mask);
        assert_int_equal(content_of(path), 2);
        assert_int_equal(mode_of(path), modes[i] & 0777);
        assert_int_equal(unlink(path), 0);
    }
}

static void own(const char *what, unsigned user, unsigned group, mode_t mode)
{
    assert_int_equal(chown(what, user, group), 0);
    assert_int_equal(chmod(what, mode), 0); /* after chown, which clears setuid */
}

/* Over a file of another owner. Only root can arrange that. */
static void test_other_owners(void **state)
{
    enum { NOBODY = 65534 };
    struct stat status;
    (void)state;
    if (geteuid() != 0) {
        print_message("files of other owners: skipped, since this is not root\n");
        skip();
    }
    assert_ok(save(path, 1));
    own(path, NOBODY, NOBODY, 06750);
    assert_ok(save(path, 2)); /* by root: no program of root's now, nor for its group */
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_uid, 0);
    assert_int_equal(status.st_mode & 07777, 0700);

    own(path, 0, 0, 06755);
    assert_int_equal(chown(directory, NOBODY, NOBODY), 0);
    pid_t child = fork();
    if (child == 0) {
        bool done = setgid(NOBODY) == 0 && setuid(NOBODY) == 0 && save(path, 3) == MUONIUM_OK;
        _exit(done ? 0 : 1);
    }
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_uid, NOBODY);
    assert_int_equal(status.st_mode & 07777, 0755);
    assert_int_equal(content_of(path), 3);
}

/* A link that waits under the temporary's name is neither followed nor removed. */
static void test_link_in_place_of_the_temporary(void **state)
{
    char victim[256], trap[256], text[16] = "";
    (void)state;
    snprintf(victim, sizeof victim, "%s/victim", directory);
    for (int exists = 0; exists < 2; exists++) {
        for (int i = 0; i < 5; i++) {
            snprintf(trap, sizeof trap, "%s.tmp-%ld-%d", path, (long)getpid(), i);
            assert_int_equal(symlink("victim", trap), 0);
        }
        if (exists) {
            FILE *file = fopen(victim, "w");
            assert_non_null(file);
            fputs("precious", file);
            fclose(file);
        }
        assert_ok(save(path, 4));
        assert_int_equal(content_of(path), 4);
        assert_int_equal(access(victim, F_OK) == 0, exists);
        assert_int_equal(files_in_directory(), 6 + exists);
        for (int i = 0; i < 5; i++) {
            snprintf(trap, sizeof trap, "%s.tmp-%ld-%d", path, (long)getpid(), i);
            assert_int_equal(unlink(trap), 0);
        }
    }
    FILE *file = fopen(victim, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, "precious");
}

/* The data is on the disk before the name points to it, then the name. */
static void test_order_of_syncs(void **state)
{
    (void)state;
    assert_int_equal(save(path, 1), MUONIUM_OK);
    assert_int_equal(fault.syncs[0], 1);
    assert_int_equal(fault.syncs[1], 1);
}

static void test_old_file_stays_until_the_end(void **state)
{
    muonium_writer *writer;
    unsigned char data[BYTES] = {0};
    (void)state;
    assert_ok(save(path, 1));
    assert_ok(muonium_writer_create(&writer));
    assert_ok(muonium_writer_add(writer, "w", "U8", 1, (uint64_t[]){BYTES}));
    assert_ok(muonium_writer_begin(writer, path));
    assert_int_equal(content_of(path), 1);
    assert_ok(muonium_writer_data(writer, data, BYTES));
    assert_int_equal(content_of(path), 1);
    assert_int_equal(files_in_directory(), 2);
    muonium_writer_destroy(writer); /* unfinished: no trace */
    assert_int_equal(files_in_directory(), 1);
    assert_int_equal(content_of(path), 1);
}

/* A relative path means what it meant when the writing began. */
static void test_change_of_directory(void **state)
{
    char before[4096];
    muonium_writer *writer;
    (void)state;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(directory), 0);
    assert_ok(muonium_writer_create(&writer));
    assert_ok(muonium_writer_begin(writer, "file.safetensors"));
    assert_int_equal(chdir(before), 0);
    assert_ok(muonium_writer_finish(writer));
    muonium_writer_destroy(writer);
    assert_int_equal(access(path, F_OK), 0);
}

static void test_symbolic_links(void **state)
{
    char link_path[256];
    char chain[256];
    struct stat status;
    (void)state;
    snprintf(link_path, sizeof link_path, "%s/link", directory);
    snprintf(chain, sizeof chain, "%s/chain", directory);
    assert_int_equal(symlink("file.safetensors", link_path), 0);
    assert_int_equal(symlink(link_path, chain), 0);
    assert_ok(save(chain, 1)); /* dangling: the target is created */
    assert_int_equal(content_of(path), 1);
    assert_ok(save(link_path, 2));
    assert_int_equal(content_of(path), 2);
    assert_int_equal(lstat(link_path, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(lstat(chain, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(files_in_directory(), 3);

    assert_int_equal(unlink(link_path), 0);
    assert_int_equal(symlink("chain", link_path), 0);
    assert_int_equal(save(chain, 3), MUONIUM_IO); /* a circle */
    assert_int_equal(files_in_directory(), 3);
    assert_int_equal(fault.open_files, 0);
}

static void test_paths_that_cannot_be_written(void **state)
{
    char other[256];
    (void)state;
    assert_int_equal(save("", 1), MUONIUM_INVALID);
    snprintf(other, sizeof other, "%s/", directory);
    assert_int_equal(save(other, 1), MUONIUM_INVALID);
    assert_int_equal(save(directory, 1), MUONIUM_IO);
    assert_non_null(strstr(muonium_last_error(), "is a directory"));
    assert_int_equal(save("/dev/null", 1), MUONIUM_IO);
    snprintf(other, sizeof other, "%s/none/file", directory);
    assert_int_equal(save(other, 1), MUONIUM_IO);
    assert_non_null(strstr(muonium_last_error(), "none"));
    assert_int_equal(files_in_directory(), 0);
    assert_int_equal(fault.open_files, 0);
}

/* A temporary that another process left or uses is neither used nor removed. */
static void test_foreign_temporary(void **state)
{
    char other[512];
    (void)state;
    snprintf(other, sizeof other, "%s.tmp-%ld-0", path, (long)getpid());
    FILE *file = fopen(other, "w");
    assert_non_null(file);
    fclose(file);
    assert_ok(save(path, 1));
    assert_int_equal(access(other, F_OK), 0);
    assert_int_equal(files_in_directory(), 2);
}

/* With every name taken the save fails, and the last one tried stays. */
static void test_no_temporary_to_be_had(void **state)
{
    char other[512];
    (void)state;
    snprintf(other, sizeof other, "%s.tmp-%ld-999", path, (long)getpid());
    FILE *file = fopen(other, "w");
    assert_non_null(file);
    fclose(file);
    inject(4, EEXIST, true); /* after readlink, the directory's openat, fstatat */
    assert_int_equal(save(path, 1), MUONIUM_IO);
    assert_int_equal(access(other, F_OK), 0);
    assert_int_equal(files_in_directory(), 1);
}

static void test_long_name(void **state)
{
    char name[256];
    char other[512];
    (void)state;
    memset(name, 'n', 255);
    name[255] = '\0';
    snprintf(other, sizeof other, "%s/%s", directory, name);
    assert_ok(save(other, 7));
    assert_int_equal(content_of(other), 7);
    assert_int_equal(files_in_directory(), 1);
}

/* Calls that may fail in a save: once each, for several reasons. */
static void test_every_call_of_a_save_fails_in_turn(void **state)
{
    static const int codes[] = {EIO, ENOSPC, EACCES, EINTR};
    int outcomes[2] = {0, 0};
    (void)state;
    inject(0, 0, false);
    assert_ok(save(path, 1));
    assert_ok(save(path, 1));
    int calls = fault.calls;
    assert_true(calls > 20);
    for (size_t c = 0; c < 4; c++) {
        for (int persistent = 0; persistent < 2; persistent++) {
            for (int i = 1;; i++) {
                inject(0, 0, false);
                assert_ok(save(path, 1));
                inject(i, codes[c], persistent == 1);
                muonium_status status = save(path, 2);
                if (fault.calls < i) {
                    break;
                }
                /* After the rename only the sync of the directory is an error. */
                assert_int_equal(content_of(path), fault.renamed ? 2 : 1);
                assert_true(status == MUONIUM_OK || status == MUONIUM_IO);
                assert_true(status != MUONIUM_OK || fault.renamed);
                /* One error other than an interruption is harmless in the last close alone. */
                if (codes[c] != EINTR && persistent == 0 && strcmp(fault.name, "close") != 0) {
                    assert_int_equal(status, MUONIUM_IO);
                }
                if (status != MUONIUM_OK && fault.renamed) {
                    assert_non_null(strstr(muonium_last_error(), "is written, but"));
                }
                outcomes[status == MUONIUM_OK]++;
                assert_int_equal(files_in_directory(), 1);
                assert_int_equal(fault.open_files, 0);
            }
        }
    }
    /* Failures were reported, and interruptions survived. */
    assert_true(outcomes[0] > 20 && outcomes[1] > 5);
}

static void test_failed_first_save_leaves_nothing(void **state)
{
    (void)state;
    for (int i = 1;; i++) {
        inject(i, EIO, false);
        muonium_status status = save(path, 1);
        if (fault.calls < i) {
            assert_int_equal(status, MUONIUM_OK);
            return;
        }
        if (access(path, F_OK) == 0) {
            assert_int_equal(content_of(path), 1);
            assert_int_equal(unlink(path), 0);
        }
        assert_int_equal(files_in_directory(), 0);
    }
}

static void test_short_reads_and_writes(void **state)
{
    unsigned char content;
    (void)state;
    for (size_t piece = 1; piece < 70; piece += 17) {
        inject(0, 0, false);
        fault.piece = piece;
        assert_ok(save(path, (unsigned char)piece));
        assert_ok(load(path, &content));
        assert_int_equal(content, piece);
    }
}

static void test_every_call_of_a_load_fails_in_turn(void **state)
{
    static const int codes[] = {EIO, EINTR};
    (void)state;
    assert_ok(save(path, 5));
    for (size_t c = 0; c < 2; c++) {
        unsigned char content = 0;
        for (int i = 1; content == 0 || fault.calls >= i; i++) {
            content = 0;
            inject(i, codes[c], false);
            muonium_status status = load(path, &content);
            bool survived = codes[c] == EINTR;
            bool harmless = fault.calls < i || strcmp(fault.name, "close") == 0 || survived;
            assert_int_equal(status, harmless ? MUONIUM_OK : MUONIUM_IO);
            assert_int_equal(content, harmless ? 5 : 0);
            assert_int_equal(fault.open_files, 0);
        }
    }
}

/* Answers that no error explains: a write that does nothing, a link without an end, a
 * directory that cannot be synced. */
static ssize_t write_nothing(int file, const void *data, size_t bytes)
{
    (void)file;
    (void)data;
    (void)bytes;
    return 0;
}

static ssize_t endless_link(const char *of, char *target, size_t bytes)
{
    (void)of;
    memset(target, 'x', bytes);
    return (ssize_t)bytes;
}

static int sync_files_alone(int file)
{
    struct stat status;
    if (fault.real.fstat(file, &status) == 0 && S_ISDIR(status.st_mode)) {
        errno = EINVAL;
        return -1;
    }
    return fault.real.fsync(file);
}

static void test_odd_answers(void **state)
{
    (void)state;
    assert_ok(save(path, 1));
    mu_file_system.write = write_nothing;
    assert_status_message(save(path, 2), MUONIUM_IO, "No space left on device");
    mu_file_system = faulty;
    mu_file_system.readlink = endless_link;
    assert_status_message(save(path, 2), MUONIUM_IO, "File name too long");
    mu_file_system = faulty;
    assert_int_equal(content_of(path), 1);
    mu_file_system.fsync = sync_files_alone;
    assert_ok(save(path, 3));
    mu_file_system = faulty;
    assert_int_equal(content_of(path), 3);
    assert_int_equal(files_in_directory(), 1);
    assert_int_equal(fault.open_files, 0);
}

/* ---- memory ---- */

/* Through a symbolic link, whose target needs memory too; and back. */
static void test_every_allocation_fails_in_turn(void **state)
{
    char link[128];
    unsigned char content = 0;
    (void)state;
    snprintf(link, sizeof link, "%s/link", directory);
    assert_int_equal(symlink("file.safetensors", link), 0);
    assert_ok(save(path, 1));
    test_count_memory();
    for (int loading = 0; loading < 2; loading++) {
        muonium_status status = MUONIUM_NO_MEMORY;
        for (int i = 1; status != MUONIUM_OK; i++) {
            test_fail_allocation(i, false);
            status = loading ? load(link, &content) : save(link, 2);
            bool failed = test_memory.calls >= i;
            test_memory.fail_at = 0;
            assert_int_equal(status, failed ? MUONIUM_NO_MEMORY : MUONIUM_OK);
            assert_int_equal(content_of(path), failed && !loading ? 1 : 2);
            assert_int_equal(files_in_directory(), 2);
            assert_int_equal(fault.open_files, 0);
            assert_int_equal(test_memory.alive, 0);
        }
        assert_true(test_memory.calls > 4);
    }
    assert_int_equal(content, 2);
    assert_ok(muonium_set_allocator(NULL));
}

/* Mapped, this would be a signal. */
static void test_file_cut_while_open(void **state)
{
    unsigned char data[BYTES];
    muonium_reader *reader;
    (void)state;
    assert_ok(save(path, 5));
    assert_ok(muonium_reader_open(path, &reader));
    assert_int_equal(truncate(path, 500), 0);
    const muonium_entry *entry = muonium_reader_find(reader, "w");
    assert_int_equal(muonium_reader_read(reader, entry, 0, data, BYTES), MUONIUM_IO);
    assert_non_null(strstr(muonium_last_error(), "cut short after it was opened"));
    assert_ok(muonium_reader_read(reader, entry, 0, data, 100));
    assert_int_equal(data[99], 5);
    muonium_reader_close(reader);
}

static void test_named_pipe(void **state)
{
    muonium_reader *reader;
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(muonium_reader_open(path, &reader), MUONIUM_IO); /* and does not hang */
    assert_int_equal(save(path, 1), MUONIUM_IO);
    assert_int_equal(files_in_directory(), 1);
}

#define WITH_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIRECTORY(test_save_and_replace),
        WITH_DIRECTORY(test_permissions),
        WITH_DIRECTORY(test_other_owners),
        WITH_DIRECTORY(test_link_in_place_of_the_temporary),
        WITH_DIRECTORY(test_order_of_syncs),
        WITH_DIRECTORY(test_old_file_stays_until_the_end),
        WITH_DIRECTORY(test_change_of_directory),
        WITH_DIRECTORY(test_symbolic_links),
        WITH_DIRECTORY(test_paths_that_cannot_be_written),
        WITH_DIRECTORY(test_foreign_temporary),
        WITH_DIRECTORY(test_no_temporary_to_be_had),
        WITH_DIRECTORY(test_long_name),
        WITH_DIRECTORY(test_every_call_of_a_save_fails_in_turn),
        WITH_DIRECTORY(test_failed_first_save_leaves_nothing),
        WITH_DIRECTORY(test_short_reads_and_writes),
        WITH_DIRECTORY(test_every_call_of_a_load_fails_in_turn),
        WITH_DIRECTORY(test_odd_answers),
        WITH_DIRECTORY(test_every_allocation_fails_in_turn),
        WITH_DIRECTORY(test_file_cut_while_open),
        WITH_DIRECTORY(test_named_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
