/*
 * subject.h: what the faults happen to: an optimizer with parameters of every type, led
 * through a life of operations that is the same every time, so that a life with faults can
 * be compared, byte for byte, with one without.
 */
#ifndef MUONIUM_FAULTS_SUBJECT_H
#define MUONIUM_FAULTS_SUBJECT_H

#include "checkpoint_model.h"

enum { SUBJECT_ROWS = 6, SUBJECT_COLS = 9, SUBJECT_STEPS = 8 };

typedef struct subject {
    muonium_options options;
    model m; /* its optimizer is NULL before the first operation */
    muonium_group *group;
    unsigned next_step;         /* number of the next step, which its gradients depend on */
    double grad_scale;          /* of all gradients; 1 */
    bytes saved;                /* the state as last saved to memory */
    bytes log;                  /* all that the library logged */
    char path[128];             /* of the state as last saved to a file */
    muonium_buffer buffers[32]; /* the list that is loaded by position */
    size_t buffer_count;
    bytes held[32]; /* its data */
    double table[2][SUBJECT_STEPS][3];
    float matrix[SUBJECT_ROWS * SUBJECT_COLS], polar[2][SUBJECT_ROWS * SUBJECT_COLS];
    double norm, factor;
    muonium_counters counters;
    muonium_parameter_report reports[MODEL_PARAMETERS];
    char message[256]; /* of a refusal */
} subject;

/* One thing that a program does with the library. */
typedef struct operation {
    const char *name;
    void (*prepare)(subject *s);       /* the program's own arithmetic before it; may be NULL */
    muonium_status (*run)(subject *s); /* calls of the library alone; may be repeated */
} operation;

extern const operation life[];
extern const size_t life_length;

/* One of the configurations, by name. */
const configuration *subject_configuration(const char *name);

/* A new subject; its file is of the given name in the directory of the kind. */
void subject_begin(subject *s, const configuration *c, const char *file);
void subject_end(subject *s);

/* Operations [from, to) of the life, which must succeed: else the status of the first that
 * does not. */
muonium_status subject_live(subject *s, size_t from, size_t to);

/* What a program can see: parameters, gradients, state, counters, certificates, results,
 * reports, the file. */
bytes subject_view(const subject *s);

/* The view after a whole life, and the log of it; its file has the given name. */
bytes subject_whole_life(const configuration *c, const char *file);

/* ---- files ---- */

/* A directory for the files of this kind; it goes when the kind is done. */
const char *files_directory(void);
void files_make_directory(void);
void files_remove_directory(void);

/* From now on the library's files reach the page cache and no disk, which makes thousands
 * of saves quick; nothing but a power failure could tell. */
void files_without_sync(void);

/* The content of a file; none if there is no such file. */
bytes file_content(const char *path);

/* How many temporary files of the library are in the directory; removes them. */
size_t files_remove_temporaries(void);

/* The descriptors that this process has open. */
size_t open_descriptors(void);

#endif
