/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hpack.c - three ways to look at a header block.
 *
 * The scanner reads only the skeleton of a block: which representation comes
 * next (RFC 7541 6), its integers, and how many bytes of strings to jump over.
 * That is enough to know whether the block reads or writes a dynamic table, and
 * cheap enough to do for every block that is forwarded verbatim. It does not
 * look into Huffman codes: a block that scans may still not decode.
 *
 * The decoder is nghttp2's inflater. It owns the dynamic table, so a block must
 * be inflated to its end whatever the caller thinks of its fields; errors that
 * are not the inflater's own are therefore remembered and returned at the end.
 * nghttp2 refuses a name or a value of more than 64 KiB by itself.
 *
 * The encoder has no state and so needs no object: a field becomes an index
 * into the static table or a literal that nobody adds to a table. Huffman coding
 * would save some 20 bytes of a request and cost a table walk; it is left out.
 */
#include "h2/hpack.h"

#include <nghttp2/nghttp2.h>
#include <stdlib.h>

/* RFC 7541 Appendix A; index = position + 1. */
struct entry {
	const char *name, *value;
	uint8_t name_len, value_len;
};

#define E(n, v)                                                                                    \
	{                                                                                          \
		n, v, sizeof(n) - 1, sizeof(v) - 1                                                 \
	}

static const struct entry static_table[] = {
	E(":authority", ""),
	E(":method", "GET"),
	E(":method", "POST"),
	E(":path", "/"),
	E(":path", "/index.html"),
	E(":scheme", "http"),
	E(":scheme", "https"),
	E(":status", "200"),
	E(":status", "204"),
	E(":status", "206"),
	E(":status", "304"),
	E(":status", "400"),
	E(":status", "404"),
	E(":status", "500"),
	E("accept-charset", ""),
	E("accept-encoding", "gzip, deflate"),
	E("accept-language", ""),
	E("accept-ranges", ""),
	E("accept", ""),
	E("access-control-allow-origin", ""),
	E("age", ""),
	E("allow", ""),
	E("authorization", ""),
	E("cache-control", ""),
	E("content-disposition", ""),
	E("content-encoding", ""),
	E("content-language", ""),
	E("content-length", ""),
	E("content-location", ""),
	E("content-range", ""),
	E("content-type", ""),
	E("cookie", ""),
	E("date", ""),
	E("etag", ""),
	E("expect", ""),
	E("expires", ""),
	E("from", ""),
	E("host", ""),
	E("if-match", ""),
	E("if-modified-since", ""),
	E("if-none-match", ""),
	E("if-range", ""),
	E("if-unmodified-since", ""),
	E("last-modified", ""),
	E("link", ""),
	E("location", ""),
	E("max-forwards", ""),
	E("proxy-authenticate", ""),
	E("proxy-authorization", ""),
	E("range", ""),
	E("referer", ""),
	E("refresh", ""),
	E("retry-after", ""),
	E("server", ""),
	E("set-cookie", ""),
	E("strict-transport-security", ""),
	E("transfer-encoding", ""),
	E("user-agent", ""),
	E("vary", ""),
	E("via", ""),
	E("www-authenticate", ""),
};

#define STATIC_ENTRIES 61
static_assert(ARRAY_SIZE(static_table) == STATIC_ENTRIES, "RFC 7541 Appendix A");

/*
 * The representations, named by the first byte's pattern. The integer that
 * follows (an index, or the new table size) has the prefix bits that are left.
 */
enum pattern {
	INDEXED = 0x80,       /* 1xxxxxxx */
	INCREMENTAL = 0x40,   /* 01xxxxxx */
	SIZE_UPDATE = 0x20,   /* 001xxxxx */
	NEVER_INDEXED = 0x10, /* 0001xxxx */
	NOT_INDEXED = 0x00,   /* 0000xxxx */
};

/* ---- scanner ---- */

#define INTEGER_MAX (1u << 28)

struct cursor {
	const uint8_t *p, *end;
};

/* RFC 7541 5.1, an integer with a prefix of `bits`. */
static int read_integer(struct cursor *c, unsigned bits, uint32_t *ret)
{
	uint32_t mask = (1u << bits) - 1;
	uint64_t v;

	if (c->p == c->end)
		return -EBADMSG;
	v = *c->p++ & mask;
	for (unsigned shift = 0; v >= mask; shift += 7) {
		uint8_t b;

		if (c->p == c->end || shift > 28)
			return -EBADMSG;
		b = *c->p++;
		v += (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			break;
	}
	if (v > INTEGER_MAX)
		return -EBADMSG;
	*ret = (uint32_t)v;
	return 0;
}

static int skip_string(struct cursor *c)
{
	uint32_t n;
	int err = read_integer(c, 7, &n);

	if (err)
		return err;
	if (n > (size_t)(c->end - c->p))
		return -EBADMSG;
	c->p += n;
	return 0;
}

static int scan_literal(struct cursor *c, unsigned bits, struct hpack_scan *s)
{
	uint32_t index;
	int err = read_integer(c, bits, &index);

	if (!err && !index)
		err = skip_string(c);
	if (!err)
		err = skip_string(c);
	if (err)
		return err;
	s->dynamic_ref |= index > STATIC_ENTRIES;
	s->fields++;
	return 0;
}

static int scan_indexed(struct cursor *c, struct hpack_scan *s)
{
	uint32_t index;
	int err = read_integer(c, 7, &index);

	if (err)
		return err;
	if (!index)
		return -EBADMSG;
	s->dynamic_ref |= index > STATIC_ENTRIES;
	s->fields++;
	return 0;
}

static int scan_size_update(struct cursor *c, struct hpack_scan *s)
{
	uint32_t size;
	int err;

	if (s->fields)
		return -EBADMSG;
	err = read_integer(c, 5, &size);
	if (err)
		return err;
	if (size)
		s->size_update_more = true;
	else if (!s->size_update)
		s->size_update_zero = true;
	s->size_update = true;
	return 0;
}

int hpack_scan(const uint8_t *block, size_t len, struct hpack_scan *ret)
{
	struct cursor c = { block, len ? block + len : block };
	struct hpack_scan s = { .fields = 0 };
	int err = 0;

	while (c.p != c.end && !err) {
		uint8_t b = *c.p;

		if (b & INDEXED) {
			err = scan_indexed(&c, &s);
		} else if (b & INCREMENTAL) {
			s.incremental = true;
			err = scan_literal(&c, 6, &s);
		} else if (b & SIZE_UPDATE) {
			err = scan_size_update(&c, &s);
		} else {
			err = scan_literal(&c, 4, &s);
		}
	}
	if (!err)
		*ret = s;
	return err;
}

/* ---- decoder ---- */

/* There is nothing of ours to keep: the opaque type is nghttp2's inflater. */
static nghttp2_hd_inflater *inflater(struct hpack_decoder *d)
{
	return (nghttp2_hd_inflater *)d;
}

struct hpack_decoder *hpack_decoder_new(uint32_t max_table)
{
	nghttp2_hd_inflater *in;

	if (nghttp2_hd_inflate_new(&in))
		return NULL;
	/*
	 * A lower limit is not forced on the inflater. It would then refuse a block
	 * that does not begin with a size update, which an encoder that never uses
	 * its table has no need to send; and an encoder that has not heard us yet
	 * goes on with the initial 4096.
	 */
	if (max_table > NGHTTP2_DEFAULT_HEADER_TABLE_SIZE &&
	    nghttp2_hd_inflate_change_table_size(in, max_table)) {
		nghttp2_hd_inflate_del(in);
		return NULL;
	}
	return (struct hpack_decoder *)in;
}

void hpack_decoder_free(struct hpack_decoder *d)
{
	if (d)
		nghttp2_hd_inflate_del(inflater(d));
}

/* What the caller wants to see of a block, and whether it still does. */
struct sink {
	int (*field)(void *arg, const struct hpack_field *f);
	void *arg;
	uint64_t room; /* of max_list */
	int err;       /* the first thing that made us stop calling field() */
};

static void sink_field(struct sink *s, const nghttp2_nv *nv)
{
	const struct hpack_field f = {
		.name = (const char *)nv->name,
		.value = (const char *)nv->value,
		.name_len = nv->namelen,
		.value_len = nv->valuelen,
		.never_indexed = nv->flags & NGHTTP2_NV_FLAG_NO_INDEX,
	};
	uint64_t size = (uint64_t)f.name_len + f.value_len + 32;

	if (s->err)
		return;
	if (size > s->room) {
		s->err = -E2BIG;
		return;
	}
	s->room -= size;
	s->err = s->field(s->arg, &f);
}

int hpack_decode(struct hpack_decoder *d, const uint8_t *block, size_t len, uint32_t max_list,
		 int (*field)(void *arg, const struct hpack_field *f), void *arg)
{
	struct sink sink = { .field = field, .arg = arg, .room = max_list };
	int flags;

	do {
		nghttp2_nv nv;
		ssize_t n;

		flags = 0;
		n = nghttp2_hd_inflate_hd2(inflater(d), &nv, &flags, block, len, 1);
		if (n < 0)
			return n == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EBADMSG;
		if (n) {
			block += n;
			len -= (size_t)n;
		}
		if (flags & NGHTTP2_HD_INFLATE_EMIT)
			sink_field(&sink, &nv);
	} while (!(flags & NGHTTP2_HD_INFLATE_FINAL));
	nghttp2_hd_inflate_end_headers(inflater(d));
	return sink.err;
}

/* ---- encoder ---- */

/* The index of name and value, or, negated, of the name alone; 0 when neither is there. */
static int static_find(const struct hpack_field *f)
{
	int name = 0;

	for (size_t i = 0; i < STATIC_ENTRIES; i++) {
		const struct entry *e = &static_table[i];

		if (e->name_len != f->name_len || memcmp(e->name, f->name, f->name_len))
			continue;
		if (e->value_len == f->value_len && !memcmp(e->value, f->value, f->value_len))
			return (int)i + 1;
		if (!name)
			name = -((int)i + 1);
	}
	return name;
}

/* Fields whose values the next hop must not put into a table either (RFC 7541 7.1.3). */
static bool is_secret(const struct hpack_field *f)
{
	static const char *const names[] = {
		"authorization", "proxy-authorization", "cookie",
		"set-cookie",    "auth-token-bin", /* Flight's Handshake token */
	};

	if (f->never_indexed)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == f->name_len && !memcmp(names[i], f->name, f->name_len))
			return true;
	return false;
}

/* Bytes that write_integer() will take. */
static size_t integer_size(unsigned bits, size_t v)
{
	size_t mask = (1u << bits) - 1, n = 1;

	if (v < mask)
		return n;
	for (v -= mask; v >= 0x80; v >>= 7)
		n++;
	return n + 1;
}

static uint8_t *write_integer(uint8_t *p, uint8_t pattern, unsigned bits, size_t v)
{
	size_t mask = (1u << bits) - 1;

	if (v < mask) {
		*p++ = (uint8_t)(pattern | v);
		return p;
	}
	*p++ = (uint8_t)(pattern | mask);
	for (v -= mask; v >= 0x80; v >>= 7)
		*p++ = (uint8_t)(v | 0x80);
	*p++ = (uint8_t)v;
	return p;
}

static uint8_t *write_string(uint8_t *p, const char *s, size_t n)
{
	p = write_integer(p, 0, 7, n);
	if (n)
		memcpy(p, s, n);
	return p + n;
}

int hpack_encode(uint8_t *buf, size_t cap, size_t *len, const struct hpack_field *f)
{
	bool secret = is_secret(f);
	int found = static_find(f);
	size_t name_index, need;
	uint8_t *p;

	assert(*len <= cap);
	if (found > 0 && !secret) {
		if (*len == cap)
			return -ENOSPC;
		buf[(*len)++] = (uint8_t)(INDEXED | found);
		return 0;
	}
	if (f->name_len > cap || f->value_len > cap) /* also keeps the sum below from wrapping */
		return -ENOSPC;
	name_index = (size_t)abs(found);
	need = integer_size(4, name_index) + integer_size(7, f->value_len) + f->value_len;
	if (!name_index)
		need += integer_size(7, f->name_len) + f->name_len;
	if (need > cap - *len)
		return -ENOSPC;

	p = write_integer(buf + *len, secret ? NEVER_INDEXED : NOT_INDEXED, 4, name_index);
	if (!name_index)
		p = write_string(p, f->name, f->name_len);
	p = write_string(p, f->value, f->value_len);
	assert(p == buf + *len + need);
	*len += need;
	return 0;
}

int hpack_encode_str(uint8_t *buf, size_t cap, size_t *len, const char *name, const char *value)
{
	const struct hpack_field f = {
		.name = name,
		.value = value,
		.name_len = strlen(name),
		.value_len = strlen(value),
	};

	return hpack_encode(buf, cap, len, &f);
}
