/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hpack.h - header blocks (RFC 7541): nghttp2's inflater behind hard caps, a
 * stateless encoder, and a scanner that tells what a block does to a decoder's
 * table without decoding it.
 *
 * The proxy forwards an executor's blocks verbatim, and a block is only valid
 * in the connection it was encoded for. It may cross only if it leaves the
 * other decoder's dynamic table alone. We make that easy (HEADER_TABLE_SIZE=0
 * to executors, a table size update to 0 in our first block to each client) and
 * verify it: hpack_scan().
 *
 * The encoder emits only static-table references and literals that are never
 * added to a table, no Huffman: its output is valid in any connection.
 */
#ifndef FS_H2_HPACK_H
#define FS_H2_HPACK_H

#include "base/base.h"

struct hpack_scan {
	bool dynamic_ref;      /* an index > 61 */
	bool incremental;      /* a literal that is added to the table */
	bool size_update;      /* any dynamic table size update */
	bool size_update_zero; /* the block begins with an update to 0 */
	bool size_update_more; /* an update to a size other than 0 */
	uint32_t fields;       /* header field representations */
};

/*
 * Walks the representations of a whole block (RFC 7541 6) without Huffman
 * decoding. 0, or -EBADMSG when the block is malformed (truncated, integer
 * over 2^28, index 0, a size update after a field).
 */
int hpack_scan(const uint8_t *block, size_t len, struct hpack_scan *ret);

/* A header field; strings are not NUL-terminated and live as long as the call says. */
struct hpack_field {
	const char *name, *value;
	size_t name_len, value_len;
	bool never_indexed; /* came as a never-indexed literal, must go out as one (RFC 7541 6.2.3) */
};

struct hpack_decoder;

/*
 * A decoder that allows a dynamic table of up to max_table bytes, or 4096 when that is
 * more: a lower limit is not forced on a peer that never announces it, its blocks decode
 * all the same. NULL on allocation failure.
 */
struct hpack_decoder *hpack_decoder_new(uint32_t max_table);
void hpack_decoder_free(struct hpack_decoder *d); /* NULL is fine */

/*
 * Decodes one whole block. Calls field() for each field in order; a non-zero
 * return of it is remembered (the rest of the block is still decoded, so the
 * table stays right) and returned at the end. Field strings live during the call.
 * max_list caps the sum over fields of name + value + 32 (RFC 9113 6.5.2);
 * above it field() is no longer called and the result is -E2BIG, table still right.
 * 0, -EBADMSG (COMPRESSION_ERROR: the connection must end), -ENOMEM, -E2BIG or field()'s.
 */
int hpack_decode(struct hpack_decoder *d, const uint8_t *block, size_t len, uint32_t max_list,
		 int (*field)(void *arg, const struct hpack_field *f), void *arg);

/*
 * Appends one field to the block at buf (cap bytes, *len used). Static-table
 * indexed where name and value match, static name where the name does, else
 * literal; "authorization" and its like go out never-indexed. 0, or -ENOSPC
 * with *len untouched.
 */
int hpack_encode(uint8_t *buf, size_t cap, size_t *len, const struct hpack_field *f);
/* The same for NUL-terminated strings. */
int hpack_encode_str(uint8_t *buf, size_t cap, size_t *len, const char *name, const char *value);

#endif
