/*
 * command_inspect.c: muonium inspect, what a safetensors file holds. An optimizer's state
 * is verified, all checksums included.
 */
#include <string.h>

#include "command.h"
#include "json.h"
#include "tensors.h"
#include "text.h"
#include "units.h"

enum { JSON };

static const option options[] = {
    [JSON] = {.name = "json", .type = OPTION_FLAG, .help = "print JSON, with all metadata"},
};

/* Of a state, what the metadata says is shown in another way. */
static bool is_own_key(const char *key)
{
    return strncmp(key, "muonium.", strlen("muonium.")) == 0;
}

static uint64_t data_bytes(const muonium_reader *reader)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < muonium_reader_count(reader); i++) {
        sum += muonium_reader_entry(reader, i)->bytes;
    }
    return sum;
}

/* ---- text ---- */

static void print_state(const muonium_reader *reader, const muonium_checkpoint_info *info)
{
    static const char group_prefix[] = "muonium.group.";
    const char *key, *value;
    text_line(stdout,
              "state of a Muonium optimizer after %llu step%s: %zu parameter%s by Muon, %zu by "
              "AdamW; saved by version %s in format %u",
              (unsigned long long)info->steps, info->steps == 1 ? "" : "s", info->muon,
              info->muon == 1 ? "" : "s", info->adam, info->version, info->format);
    printf("checksums of the header and all %zu tensors are right\n", info->tensors);
    for (size_t i = 0; (key = muonium_reader_metadata_key(reader, i, &value)) != NULL; i++) {
        if (strncmp(key, group_prefix, strlen(group_prefix)) == 0) {
            tensor_text number = tensor_name(key + strlen(group_prefix));
            text_line(stdout, "group %s: %s", number.text, value);
        }
    }
}

static void print_file(const char *path, const muonium_reader *reader,
                       const muonium_checkpoint_info *info)
{
    const char *key, *value;
    size_t count = muonium_reader_count(reader);
    unit_text size = units_bytes(data_bytes(reader));
    text_line(stdout, "%s: %zu tensor%s, %s", path, count, count == 1 ? "" : "s", size.text);
    if (info != NULL) {
        print_state(reader, info);
    } else {
        printf("no state of a Muonium optimizer, and no checksums to verify\n");
    }
    for (size_t i = 0; (key = muonium_reader_metadata_key(reader, i, &value)) != NULL; i++) {
        if (info == NULL || !is_own_key(key)) {
            tensor_text name = tensor_name(key), text = tensor_name(value);
            text_line(stdout, "metadata %s: %s", name.text, text.text);
        }
    }
    for (size_t i = 0; i < count; i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        tensor_text name = tensor_name(entry->name), shape = tensor_shape(entry);
        unit_text bytes = units_bytes(entry->bytes);
        text_line(stdout, "%-48s %-8s %-24s %12s", name.text, entry->dtype, shape.text, bytes.text);
    }
}

/* ---- JSON ---- */

static void write_state(json *writer, const muonium_checkpoint_info *info)
{
    json_object(writer, "state");
    json_integer(writer, "format", info->format);
    json_string(writer, "version", info->version);
    json_integer(writer, "step", (long long)info->steps);
    json_integer(writer, "muon", (long long)info->muon);
    json_integer(writer, "adam", (long long)info->adam);
    json_integer(writer, "groups", (long long)info->groups);
    json_bool(writer, "verified", true);
    json_object_end(writer);
}

static void write_file(const char *path, const muonium_reader *reader,
                       const muonium_checkpoint_info *info)
{
    json writer = {.out = stdout};
    const char *key, *value;
    json_object(&writer, NULL);
    json_string(&writer, "file", path);
    json_integer(&writer, "bytes", (long long)data_bytes(reader));
    if (info != NULL) {
        write_state(&writer, info);
    } else {
        json_string(&writer, "state", NULL);
    }
    json_object(&writer, "metadata");
    for (size_t i = 0; (key = muonium_reader_metadata_key(reader, i, &value)) != NULL; i++) {
        json_string(&writer, key, value);
    }
    json_object_end(&writer);
    json_array(&writer, "tensors");
    for (size_t i = 0; i < muonium_reader_count(reader); i++) {
        const muonium_entry *entry = muonium_reader_entry(reader, i);
        json_object(&writer, NULL);
        json_string(&writer, "name", entry->name);
        json_string(&writer, "dtype", entry->dtype);
        json_array(&writer, "shape");
        for (size_t d = 0; d < entry->ndim; d++) {
            json_integer(&writer, NULL, (long long)entry->shape[d]);
        }
        json_array_end(&writer);
        json_integer(&writer, "bytes", (long long)entry->bytes);
        json_integer(&writer, "offset", (long long)entry->offset);
        json_object_end(&writer);
    }
    json_array_end(&writer);
    json_object_end(&writer);
}

static int run(const command *self, const arguments *given)
{
    const char *path = given->operand[0];
    muonium_reader *reader = NULL;
    muonium_checkpoint_info info;
    muonium_status status = muonium_reader_open(path, &reader);
    bool is_state = status == MUONIUM_OK && muonium_is_checkpoint(reader);
    if (is_state) {
        status = muonium_verify(reader, &info);
    }
    int code = EXIT_OK;
    if (status != MUONIUM_OK) {
        code = message_failed(self->name, "%s", muonium_last_error());
    } else if (given->value[JSON].given) {
        write_file(path, reader, is_state ? &info : NULL);
    } else {
        print_file(path, reader, is_state ? &info : NULL);
    }
    muonium_reader_close(reader);
    return code;
}

const command command_inspect = {
    .name = "inspect",
    .summary = "list and verify a safetensors file",
    .description =
        "Lists the tensors and the metadata of FILE. A file that breaks a rule of the safetensors "
        "format is an error.\n\n"
        "If FILE is the state of a Muonium optimizer, the command also prints its parameters and "
        "number of steps, and verifies all checksums. A damaged file is an error.",
    .example = "muonium inspect optimizer.safetensors\n"
               "muonium inspect model.safetensors --json",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .operands = "FILE",
    .least_operands = 1,
    .most_operands = 1,
    .run = run,
};
