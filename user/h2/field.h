/* SPDX-License-Identifier: Apache-2.0 */
/* field.h - what a header field may look like, in requests, responses and trailers alike. */
#ifndef FS_H2_FIELD_H
#define FS_H2_FIELD_H

#include "h2/hpack.h"

/* Both compare whole strings, as they are: names are lower case in HTTP/2. */
bool hpack_name_is(const struct hpack_field *f, const char *name);
bool hpack_value_is(const struct hpack_field *f, const char *value);

/*
 * RFC 9113 8.2.1: a name in lower case, no control characters in either; 8.2.2: nothing
 * that belongs to a connection. A message with a field that is not legal is malformed and
 * must not be forwarded. Blanks around a value are not looked at, see hpack_value_blank().
 */
bool hpack_field_legal(const struct hpack_field *f);

/*
 * Whether the value begins or ends with a blank, which RFC 9113 8.2.1 forbids too. Strict
 * peers end the connection for it, while some clients put what users wrote into fields.
 */
bool hpack_value_blank(const struct hpack_field *f);

#endif
