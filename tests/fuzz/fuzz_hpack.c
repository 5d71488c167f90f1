/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One header block, seen by the scanner and by decoders with different pasts.
 *
 *   byte 0   length of the history
 *   history  a block that one of the decoders has decoded before
 *   rest     the block
 *
 * The proxy forwards a block to a decoder it was not made for when the scanner
 * says that it touches no table. So:
 *   - a block that decodes is one that scans, with as many fields;
 *   - a block that scans as stateless gives the same fields, or the same error,
 *     in every decoder, and leaves every decoder's table alone;
 *   - a block that scans as writing nothing leaves the table alone;
 *   - what hpack_encode() makes of the fields is stateless and gives them back;
 *   - a caller that stops listening leaves the table as one that does not.
 */
#include "fuzz/check.h"

#include "h2/hpack.h"

#define TABLE 4096

/* Fields one after another with their lengths, to be compared as bytes. */
struct fields {
	uint8_t *p;
	size_t len, cap;
	uint32_t count;
};

static void fields_add(struct fields *s, const void *p, size_t n)
{
	if (s->len + n > s->cap) {
		s->cap = 2 * (s->len + n);
		s->p = realloc(s->p, s->cap);
		CHECK(s->p);
	}
	if (n)
		memcpy(s->p + s->len, p, n);
	s->len += n;
}

static int take(void *arg, const struct hpack_field *f)
{
	struct fields *s = arg;

	fields_add(s, &f->name_len, sizeof(f->name_len));
	fields_add(s, &f->value_len, sizeof(f->value_len));
	fields_add(s, f->name, f->name_len);
	fields_add(s, f->value, f->value_len);
	s->count++;
	return 0;
}

static bool same(const struct fields *a, const struct fields *b)
{
	return a->count == b->count && a->len == b->len && (!a->len || !memcmp(a->p, b->p, a->len));
}

static int stop(void *arg, const struct hpack_field *f)
{
	(void)arg;
	(void)f;
	return -ECANCELED;
}

static struct hpack_decoder *new_decoder(void)
{
	struct hpack_decoder *d = hpack_decoder_new(TABLE);

	CHECK(d);
	return d;
}

/* A decoder with something in its table, and then the history, unless that is no block. */
static struct hpack_decoder *with_history(const struct input *history)
{
	static const uint8_t own[] = { 0x40, 1, 'a', 1,    'b', 0x40, 1,    'c', 1, 'd',
				       0x41, 1, 'e', 0x7c, 1,   'f',  0x40, 0,   0 };
	struct fields ignored = { .p = NULL };
	struct hpack_decoder *d = new_decoder();

	CHECK(!hpack_decode(d, own, sizeof(own), UINT32_MAX, take, &ignored));
	if (hpack_decode(d, history->p, history->len, UINT32_MAX, take, &ignored)) {
		hpack_decoder_free(d);
		d = with_history(&(struct input){ NULL, 0 });
	}
	free(ignored.p);
	return d;
}

/* The dynamic table: asks for every index until there is none. Ends the decoder. */
static struct fields table_of(struct hpack_decoder *d)
{
	struct fields t = { .p = NULL };

	for (uint32_t index = 62;; index++) {
		uint8_t block[] = { (uint8_t)(0x80 | index), 0, 0 };
		size_t len = 1;

		if (index >= 127) {
			uint32_t v = index - 127;

			block[0] = 0xff;
			block[1] = (uint8_t)(v & 0x7f);
			if (v >= 0x80) {
				block[1] |= 0x80;
				block[len++ + 1] = (uint8_t)(v >> 7);
			}
			len++;
		}
		CHECK(index < 62 + TABLE / 32 + 1);
		if (hpack_decode(d, block, len, UINT32_MAX, take, &t))
			break;
	}
	hpack_decoder_free(d);
	return t;
}

static void check_tables(struct hpack_decoder *a, struct hpack_decoder *b)
{
	struct fields x = table_of(a), y = table_of(b);

	CHECK(same(&x, &y));
	free(x.p);
	free(y.p);
}

static bool is_stateless(const struct hpack_scan *s)
{
	return !s->dynamic_ref && !s->incremental && !s->size_update;
}

struct encoder {
	uint8_t *buf;
	size_t cap, len;
};

static int encode(void *arg, const struct hpack_field *f)
{
	struct encoder *e = arg;
	size_t before = e->len;

	/* First where it does not fit. */
	CHECK(hpack_encode(e->buf, e->len, &e->len, f) == -ENOSPC && e->len == before);
	CHECK(!hpack_encode(e->buf, e->cap, &e->len, f));
	if (f->never_indexed)
		CHECK((e->buf[before] & 0xf0) == 0x10);
	return 0;
}

/* Decodes the block a second time and encodes its fields as they come. */
static void check_encoder(const struct input *block, const struct fields *want,
			  const struct input *history)
{
	struct encoder e = { .cap = want->len + 32 * (size_t)want->count + 1 };
	struct hpack_decoder *fresh = new_decoder(), *old = with_history(history);
	struct fields got = { .p = NULL };
	struct hpack_scan s;

	e.buf = malloc(e.cap);
	CHECK(e.buf);
	CHECK(!hpack_decode(fresh, block->p, block->len, UINT32_MAX, encode, &e));
	CHECK(!hpack_scan(e.buf, e.len, &s));
	CHECK(is_stateless(&s) && s.fields == want->count);
	CHECK(!hpack_decode(old, e.buf, e.len, UINT32_MAX, take, &got));
	CHECK(same(&got, want));
	hpack_decoder_free(fresh);
	check_tables(old, with_history(history));
	free(got.p);
	free(e.buf);
}

static void check_not_listening(const struct input *block, const struct fields *fields)
{
	struct hpack_decoder *all = new_decoder(), *stopped = new_decoder(), *full = new_decoder();
	struct fields a = { .p = NULL }, b = { .p = NULL };
	struct hpack_decoder *other = new_decoder();

	CHECK(!hpack_decode(all, block->p, block->len, UINT32_MAX, take, &a));
	CHECK(hpack_decode(stopped, block->p, block->len, UINT32_MAX, stop, NULL) ==
	      (fields->count ? -ECANCELED : 0));
	CHECK(hpack_decode(full, block->p, block->len, 31, take, &b) ==
	      (fields->count ? -E2BIG : 0));
	CHECK(!b.count);
	CHECK(!hpack_decode(other, block->p, block->len, UINT32_MAX, take, &b));
	check_tables(all, stopped);
	check_tables(full, other);
	free(a.p);
	free(b.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct input history = input_take(&in, input_byte(&in));
	uint8_t *block_copy = input_copy(&in), *history_copy = input_copy(&history);
	struct input block = { block_copy, in.len };
	struct hpack_decoder *fresh, *old;
	struct fields in_fresh = { .p = NULL }, in_old = { .p = NULL };
	struct hpack_scan s = { .fields = UINT32_MAX };
	int scan, err, old_err;

	history.p = history_copy;
	fresh = new_decoder();
	old = with_history(&history);
	scan = hpack_scan(block.p, block.len, &s);
	err = hpack_decode(fresh, block.p, block.len, UINT32_MAX, take, &in_fresh);
	old_err = hpack_decode(old, block.p, block.len, UINT32_MAX, take, &in_old);
	CHECK(scan == 0 || (scan == -EBADMSG && s.fields == UINT32_MAX));
	CHECK(err == 0 || err == -EBADMSG);

	/* A block that decodes anywhere scans, and to as many fields. */
	if (!err)
		CHECK(!scan && s.fields == in_fresh.count);
	if (!old_err)
		CHECK(!scan && s.fields == in_old.count);
	if (!scan && is_stateless(&s)) {
		CHECK(err == old_err);
		CHECK(same(&in_fresh, &in_old));
	}
	if (!old_err && !s.incremental && !s.size_update)
		check_tables(old, with_history(&history));
	else
		hpack_decoder_free(old);
	hpack_decoder_free(fresh);
	if (!err) {
		check_encoder(&block, &in_fresh, &history);
		check_not_listening(&block, &in_fresh);
	}
	free(in_fresh.p);
	free(in_old.p);
	free(block_copy);
	free(history_copy);
	return 0;
}
