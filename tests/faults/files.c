/*
 * files.c: the directory of a kind and what is in it; see subject.h.
 */
#include "subject.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/file.h"

static char directory[64];

const char *files_directory(void)
{
    return directory;
}

void files_make_directory(void)
{
    snprintf(directory, sizeof directory, "/tmp/muonium-faults-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        exit(2);
    }
}

size_t files_remove_temporaries(void)
{
    size_t count = 0;
    DIR *listing = opendir(directory);
    if (listing == NULL) {
        return 0;
    }
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        if (strstr(item->d_name, ".tmp-") != NULL) {
            unlinkat(dirfd(listing), item->d_name, 0);
            count++;
        }
    }
    closedir(listing);
    return count;
}

void files_remove_directory(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", directory);
    if (system(command) != 0) {
        fprintf(stderr, "%s is left\n", directory);
    }
}

static int no_sync(int file)
{
    (void)file;
    return 0;
}

void files_without_sync(void)
{
    mu_file_system.fsync = no_sync;
}

bytes file_content(const char *path)
{
    bytes content = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return content;
    }
    char buffer[1 << 14];
    for (ssize_t got; (got = read(file, buffer, sizeof buffer)) > 0;) {
        if (!bytes_append(&content, buffer, (size_t)got)) {
            abort();
        }
    }
    close(file);
    return content;
}

size_t open_descriptors(void)
{
    size_t count = 0;
    DIR *listing = opendir("/proc/self/fd");
    if (listing == NULL) {
        return 0;
    }
    while (readdir(listing) != NULL) {
        count++;
    }
    closedir(listing);
    return count;
}
