/*
 * hostile.c: the files of tests/data/hostile, made by tools/make_hostile_safetensors.py to
 * break readers. Each is refused with the message that expected.txt has for it, which names
 * the entry, from a path, from memory and from a source, and no optimizer loads it.
 */
#include "faults.h"

static subject victim;

static const char *source_directory(void)
{
    const char *root = getenv("MUONIUM_SOURCE_DIR");
    return root == NULL ? "." : root;
}

static bool read_bytes(void *context, uint64_t offset, void *buffer, size_t count)
{
    const bytes *from = context;
    if (offset > from->count || count > from->count - offset) {
        return false; /* would be an attempt to read beyond the end */
    }
    memcpy(buffer, from->data + offset, count);
    return true;
}

static muonium_status open_path(const char *path, bytes *content)
{
    muonium_reader *reader = NULL;
    (void)content;
    muonium_status status = muonium_reader_open(path, &reader);
    muonium_reader_close(reader);
    return status;
}

static muonium_status open_memory(const char *path, bytes *content)
{
    muonium_reader *reader = NULL;
    (void)path;
    muonium_status status = muonium_reader_open_memory(content->data, content->count, &reader);
    muonium_reader_close(reader);
    return status;
}

static muonium_status open_source(const char *path, bytes *content)
{
    muonium_source source = {read_bytes, content, content->count};
    muonium_reader *reader = NULL;
    (void)path;
    muonium_status status = muonium_reader_open_source(&source, &reader);
    muonium_reader_close(reader);
    return status;
}

static muonium_status load_path(const char *path, bytes *content)
{
    (void)content;
    return muonium_load(victim.m.optimizer, path);
}

typedef struct way {
    const char *name;
    muonium_status (*open)(const char *path, bytes *content);
} way;

static const way ways[] = {{"by path", open_path},
                           {"from memory", open_memory},
                           {"from a source", open_source},
                           {"as a state", load_path}};

static void try_file(const char *path, const char *message)
{
    bytes content = file_content(path);
    bytes exact = {malloc(content.count > 0 ? content.count : 1), content.count};
    assert_non_null(exact.data);
    if (content.count > 0) {
        memcpy(exact.data, content.data, content.count);
    }
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        fault_where("%s %s", path, ways[i].name);
        if (!fault_next()) {
            continue;
        }
        bytes before = subject_view(&victim);
        muonium_status status = ways[i].open(path, &exact);
        bytes after = subject_view(&victim);
        if (fault_sabotage(0, 2)) {
            status = MUONIUM_OK;
        }
        const char *wanted = fault_sabotage(1, 2) ? "the wrong entry" : message;
        fault_expect_status(status, MUONIUM_FORMAT);
        fault_expect(strstr(muonium_last_error(), wanted) != NULL,
                     "the message \"%s\" lacks \"%s\"", muonium_last_error(), wanted);
        fault_expect(bytes_equal(&before, &after), "something has changed");
        bytes_free(&before);
        bytes_free(&after);
    }
    bytes_free(&exact);
    bytes_free(&content);
}

void faults_of_hostile_files(void)
{
    char path[4096], line[2048];
    snprintf(path, sizeof path, "%s/tests/data/hostile/expected.txt", source_directory());
    FILE *list = fopen(path, "r");
    if (list == NULL) {
        perror(path);
        exit(2);
    }
    subject_begin(&victim, subject_configuration("muonium"), "state");
    assert_ok(subject_live(&victim, 0, 14));
    while (fgets(line, sizeof line, list) != NULL) {
        char *message = strchr(line, '\t');
        line[strcspn(line, "\n")] = '\0';
        assert_non_null(message);
        *message++ = '\0';
        snprintf(path, sizeof path, "%s/tests/data/hostile/%s", source_directory(), line);
        try_file(path, message);
    }
    fclose(list);
    subject_end(&victim);
}
