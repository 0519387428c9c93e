
/*
 * Copyright (C) the llm-capture authors
 */

/*
 * What is JSON, from jansson, which shares nothing with the scan.  The scan
 * says what orjson says (t/scan_orjson.t compares the two); jansson takes the
 * same language, numbers as doubles with the same overflow, but for
 *
 *     \u0000 in a key    refused: it is spelled \u0001 for jansson
 *     a byte 0           skipped behind a number; no JSON has one
 *     depth              2048: that of the tree is measured
 */

#ifndef _ORACLE_H_INCLUDED_
#define _ORACLE_H_INCLUDED_


#include "fuzz.h"

#include <jansson.h>


static inline json_t *
oracle_load(const uint8_t *data, size_t size, json_error_t *err)
{
    char    *text;
    size_t   i;
    json_t  *root;

    memset(err, 0, sizeof(json_error_t));

    if (size && memchr(data, '\0', size)) {
        return NULL;
    }

    text = copy(data, size);

    /* in valid JSON each backslash is in a string */

    for (i = 0; i + 1 < size; i++) {

        if (text[i] != '\\') {
            continue;
        }

        if (size - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0) {
            text[i + 5] = '1';
        }

        i++;
    }

    root = json_loadb(text, size, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL
                                  | JSON_ALLOW_NUL, err);
    free(text);

    return root;
}


static inline unsigned
oracle_depth(json_t *value)
{
    void        *member;
    json_t      *item;
    size_t       i;
    unsigned     d, most;

    most = 0;

    if (json_is_object(value)) {

        for (member = json_object_iter(value); member;
             member = json_object_iter_next(value, member))
        {
            d = oracle_depth(json_object_iter_value(member));
            most = d > most ? d : most;
        }

        return most + 1;
    }

    if (json_is_array(value)) {

        json_array_foreach(value, i, item) {
            d = oracle_depth(item);
            most = d > most ? d : most;
        }

        return most + 1;
    }

    return 0;
}


#endif /* _ORACLE_H_INCLUDED_ */
