/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RFC 7541's own examples through decoder and scanner; the encoder against
 * nghttp2, which also vouches for our copy of the static table.
 */
#include "unit/hex.h"

#include "h2/hpack.h"

#define NO_LIMIT UINT32_MAX

/* Collects fields as "name: value\n", never-indexed ones with a leading '!'. */
struct text {
	char s[70000];
	size_t len;
	unsigned calls;
	unsigned fail_at; /* the call that returns -ECANCELED, 0 = none */
};

static int to_text(void *arg, const struct hpack_field *f)
{
	struct text *t = arg;

	t->calls++;
	if (t->calls == t->fail_at)
		return -ECANCELED;
	assert_true(t->len + f->name_len + f->value_len + 5 < sizeof(t->s));
	t->len += (size_t)sprintf(t->s + t->len, "%s%.*s: %.*s\n", f->never_indexed ? "!" : "",
				  (int)f->name_len, f->name, (int)f->value_len, f->value);
	return 0;
}

static int decode_hex(struct hpack_decoder *d, const char *hex, uint32_t max_list, struct text *t)
{
	uint8_t buf[512];
	size_t n = hex_read(buf, sizeof(buf), hex);
	uint8_t *p = exact_copy(buf, n);
	int err;

	t->len = 0;
	t->s[0] = '\0';
	t->calls = 0;
	err = hpack_decode(d, p, n, max_list, to_text, t);
	free(p);
	return err;
}

static void decodes_to(struct hpack_decoder *d, const char *hex, const char *want)
{
	struct text t = { .fail_at = 0 };

	assert_int_equal(decode_hex(d, hex, NO_LIMIT, &t), 0);
	assert_string_equal(t.s, want);
}

static struct hpack_decoder *new_decoder(void)
{
	struct hpack_decoder *d = hpack_decoder_new(4096);

	assert_non_null(d);
	return d;
}

/* Flags of a scan as letters: d(ynamic) i(ncremental) u(pdate) z(ero first) m(ore than zero). */
static void scans_as(const char *hex, const char *want, unsigned fields)
{
	uint8_t buf[512];
	size_t n = hex_read(buf, sizeof(buf), hex);
	uint8_t *p = exact_copy(buf, n);
	struct hpack_scan s;
	char got[6];

	assert_int_equal(hpack_scan(p, n, &s), 0);
	free(p);
	snprintf(got, sizeof(got), "%s%s%s%s%s", s.dynamic_ref ? "d" : "", s.incremental ? "i" : "",
		 s.size_update ? "u" : "", s.size_update_zero ? "z" : "",
		 s.size_update_more ? "m" : "");
	assert_string_equal(got, want);
	assert_int_equal(s.fields, fields);
}

static void scan_refuses(const char *hex)
{
	const struct hpack_scan untouched = { true, true, true, true, true, 99 };
	struct hpack_scan s = untouched;
	uint8_t buf[512];
	size_t n = hex_read(buf, sizeof(buf), hex);
	uint8_t *p = exact_copy(buf, n);

	if (hpack_scan(p, n, &s) != -EBADMSG)
		fail_msg("'%s' was not refused", hex);
	assert_int_equal(s.fields, untouched.fields);
	assert_true(s.dynamic_ref && s.incremental && s.size_update && s.size_update_zero);
	free(p);
}

/* ---- RFC 7541 Appendix C ---- */

struct example {
	const char *section;
	const char *hex;
	const char *fields;
	const char *scan;
	unsigned count;
};

#define C3_1 ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n"
#define C3_2 C3_1 "cache-control: no-cache\n"
#define C3_3                                                                                       \
	":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n"          \
	"custom-key: custom-value\n"
#define C5_1                                                                                       \
	":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n"              \
	"location: https://www.example.com\n"
#define C5_2                                                                                       \
	":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n"              \
	"location: https://www.example.com\n"
#define C5_3                                                                                       \
	":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n"              \
	"location: https://www.example.com\ncontent-encoding: gzip\n"                              \
	"set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n"
/* C.5 and C.6 assume SETTINGS_HEADER_TABLE_SIZE=256; said in the block, so that entries are evicted. */
#define TO_256 "3fe101 "

/* clang-format off */
static const struct example single[] = {
	{ "C.2.1", "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
	  "custom-key: custom-header\n", "i", 1 },
	{ "C.2.2", "040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path\n", "", 1 },
	{ "C.2.3", "1008 7061 7373 776f 7264 0673 6563 7265 74", "!password: secret\n", "", 1 },
	{ "C.2.4", "82", ":method: GET\n", "", 1 },
};
static const struct example c3[] = {
	{ "C.3.1", "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", C3_1, "i", 4 },
	{ "C.3.2", "8286 84be 5808 6e6f 2d63 6163 6865", C3_2, "di", 5 },
	{ "C.3.3", "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
	  C3_3, "di", 5 },
};
static const struct example c4[] = {
	{ "C.4.1", "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", C3_1, "i", 4 },
	{ "C.4.2", "8286 84be 5886 a8eb 1064 9cbf", C3_2, "di", 5 },
	{ "C.4.3", "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", C3_3, "di", 5 },
};
static const struct example c5[] = {
	{ "C.5.1", TO_256 "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 "
	  "3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 "
	  "6d70 6c65 2e63 6f6d", C5_1, "ium", 4 },
	{ "C.5.2", "4803 3330 37c1 c0bf", C5_2, "di", 4 },
	{ "C.5.3", "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 "
	  "474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 "
	  "5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
	  C5_3, "di", 6 },
};
static const struct example c6[] = {
	{ "C.6.1", TO_256 "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 "
	  "66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3", C5_1, "ium", 4 },
	{ "C.6.2", "4883 640e ffc1 c0bf", C5_2, "di", 4 },
	{ "C.6.3", "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b "
	  "d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f "
	  "9587 3160 65c0 03ed 4ee5 b106 3d50 07", C5_3, "di", 6 },
};
/* clang-format on */

/* One connection: the examples follow each other and share the dynamic table. */
static void run_examples(const struct example *e, size_t n)
{
	struct hpack_decoder *d = new_decoder();

	for (size_t i = 0; i < n; i++) {
		decodes_to(d, e[i].hex, e[i].fields);
		scans_as(e[i].hex, e[i].scan, e[i].count);
	}
	hpack_decoder_free(d);
}

static void rfc7541_examples(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(single); i++)
		run_examples(&single[i], 1);
	run_examples(c3, ARRAY_SIZE(c3));
	run_examples(c4, ARRAY_SIZE(c4));
	run_examples(c5, ARRAY_SIZE(c5));
	run_examples(c6, ARRAY_SIZE(c6));
}

/*
 * Cut anywhere: decoder and scanner agree whether what is left is whole. (They
 * need not agree in general, the scanner does not look into Huffman codes.)
 */
static void truncated(const struct example *e)
{
	uint8_t buf[512];
	size_t n = hex_read(buf, sizeof(buf), e->hex);

	for (size_t cut = 0; cut < n; cut++) {
		struct hpack_decoder *d = new_decoder();
		struct text t = { .fail_at = 0 };
		struct hpack_scan s;
		uint8_t *p = exact_copy(buf, cut);
		int err = hpack_decode(d, p, cut, NO_LIMIT, to_text, &t);

		assert_int_equal(hpack_scan(p, cut, &s), err);
		if (!err)
			assert_int_equal(s.fields, t.calls);
		else
			assert_int_equal(err, -EBADMSG);
		free(p);
		hpack_decoder_free(d);
	}
}

static void rfc7541_examples_truncated(void **state)
{
	(void)state;
	/* The first of each, which stand on an empty table. */
	for (size_t i = 0; i < ARRAY_SIZE(single); i++)
		truncated(&single[i]);
	truncated(&c3[0]);
	truncated(&c4[0]);
	truncated(&c5[0]);
	truncated(&c6[0]);
}

/* ---- the decoder's errors ---- */

static void empty_block(void **state)
{
	struct hpack_decoder *d = new_decoder();
	struct text t = { .fail_at = 0 };

	(void)state;
	assert_int_equal(hpack_decode(d, NULL, 0, 0, to_text, &t), 0);
	assert_int_equal(t.calls, 0);
	decodes_to(d, "82", ":method: GET\n");
	hpack_decoder_free(d);
	hpack_decoder_free(NULL);
}

static void malformed_blocks(void **state)
{
	static const char *const blocks[] = {
		"80",                /* index 0 */
		"be",                /* dynamic index, empty table */
		"7e 00",             /* a name of the empty table */
		"ff ff ff ff ff 7f", /* integer overflow */
		"82 20",             /* size update after a field */
		"3f e2 1f",          /* size update to 4097 */
		"00 81 ff 00",       /* Huffman padding of eight bits */
		"00 82 ff ff 00",    /* Huffman: part of EOS */
		"00 01",             /* truncated */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(blocks); i++) {
		struct hpack_decoder *d = new_decoder();
		struct text t = { .fail_at = 0 };

		if (decode_hex(d, blocks[i], NO_LIMIT, &t) != -EBADMSG)
			fail_msg("'%s' was not refused", blocks[i]);
		/* The table is not to be trusted any more, and says so. */
		assert_int_equal(decode_hex(d, "82", NO_LIMIT, &t), -EBADMSG);
		hpack_decoder_free(d);
	}
}

/* C.3.1 holds 38 + 43 + 38 + 57 bytes by RFC 9113's measure. */
static void header_list_limit(void **state)
{
	static const uint32_t size[] = { 7 + 3 + 32, 7 + 4 + 32, 5 + 1 + 32, 10 + 15 + 32 };
	uint32_t sum = 0;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct hpack_decoder *d = new_decoder();
		struct text t = { .fail_at = 0 };

		sum += size[i];
		assert_int_equal(decode_hex(d, c3[0].hex, sum - 1, &t), -E2BIG);
		assert_int_equal(t.calls, i);
		/* The rest was read all the same: C.3.2 refers to what it inserted. */
		decodes_to(d, c3[1].hex, c3[1].fields);
		hpack_decoder_free(d);
	}
	{
		struct hpack_decoder *d = new_decoder();
		struct text t = { .fail_at = 0 };

		assert_int_equal(decode_hex(d, c3[0].hex, sum, &t), 0);
		assert_int_equal(t.calls, 4);
		hpack_decoder_free(d);
	}
}

static void field_errors_are_remembered(void **state)
{
	(void)state;
	for (unsigned at = 1; at <= 4; at++) {
		struct hpack_decoder *d = new_decoder();
		struct text t = { .fail_at = at };

		assert_int_equal(decode_hex(d, c3[0].hex, NO_LIMIT, &t), -ECANCELED);
		assert_int_equal(t.calls, at); /* and not called again */
		decodes_to(d, c3[1].hex, c3[1].fields);
		hpack_decoder_free(d);
	}
}

/* A small field after one that was too large must not slip through. */
static void nothing_after_the_limit(void **state)
{
	struct hpack_decoder *d = new_decoder();
	struct text t = { .fail_at = 0 };

	(void)state;
	/* x: 60 bytes (93), then :method GET (42): room for the second only. */
	assert_int_equal(
		decode_hex(d,
			   "00 01 78 3c 787878787878787878787878787878787878787878787878787878"
			   "787878787878787878787878787878787878787878787878787878787878787878"
			   "82",
			   50, &t),
		-E2BIG);
	assert_int_equal(t.calls, 0);
	hpack_decoder_free(d);
}

/* C.3.1's entry has 57 bytes: it fits into the initial 4096 whatever limit was asked for. */
static void table_limits(void **state)
{
	static const uint32_t limits[] = { 0, 256, 4096, 65536 };
	struct text t = { .fail_at = 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		struct hpack_decoder *d = hpack_decoder_new(limits[i]);

		assert_non_null(d);
		decodes_to(d, c3[0].hex, c3[0].fields);
		decodes_to(d, c3[1].hex, c3[1].fields);
		/* An update to 4096 (3f e1 1f) always; to 65536 (3f e1 ff 03) where allowed. */
		decodes_to(d, "3f e1 1f be", "cache-control: no-cache\n");
		assert_int_equal(decode_hex(d, "3f e1 ff 03 be", NO_LIMIT, &t),
				 limits[i] == 65536 ? 0 : -EBADMSG);
		hpack_decoder_free(d);
	}
}

static void size_update_to_zero_empties_the_table(void **state)
{
	struct hpack_decoder *d = hpack_decoder_new(0);
	struct text t = { .fail_at = 0 };

	(void)state;
	assert_non_null(d);
	decodes_to(d, "20", "");
	/* Insertions are legal and without effect now. */
	decodes_to(d, c3[0].hex, c3[0].fields);
	assert_int_equal(decode_hex(d, "be", NO_LIMIT, &t), -EBADMSG);
	hpack_decoder_free(d);
}

/* ---- the scanner ---- */

static void scanner_flags(void **state)
{
	(void)state;
	scans_as("", "", 0);
	scans_as("bd", "", 1);     /* index 61 */
	scans_as("be", "d", 1);    /* 62 */
	scans_as("ff 00", "d", 1); /* 127 */
	scans_as("ff 80 00", "d", 1);
	scans_as("ff 80 80 80 80 00", "d", 1); /* as much padding as nghttp2 takes */
	scans_as("7d 00", "i", 1);             /* literal with a static name, added */
	scans_as("7e 00", "di", 1);            /* dynamic name */
	scans_as("0f 2e 00", "", 1);           /* name 61 */
	scans_as("0f 2f 00", "d", 1);          /* name 62, not added */
	scans_as("1f 2e 00", "", 1);
	scans_as("1f 2f 00", "d", 1);
	scans_as("40 01 78 01 79", "i", 1);
	scans_as("00 00 00", "", 1);
	scans_as("20", "uz", 0);
	scans_as("20 82", "uz", 1);
	scans_as("20 20", "uz", 0);
	scans_as("20 3f e1 1f", "uzm", 0);
	scans_as("3f e1 1f 20", "um", 0);
	scans_as("21", "um", 0);
	scans_as("3f 00", "um", 0); /* 31 */
}

static void scanner_refuses(void **state)
{
	(void)state;
	scan_refuses("80"); /* index 0 */
	scan_refuses("82 80");
	scan_refuses("82 20"); /* update after a field */
	scan_refuses("20 82 20");
	scan_refuses("ff"); /* integer ends early */
	scan_refuses("ff 80");
	scan_refuses("ff 82 ff ff 7f"); /* 2^28 + 1 */
	scan_refuses("ff ff ff ff ff 7f");
	scan_refuses("ff 80 80 80 80 80 00"); /* zeros without end */
	scan_refuses("ff 80 80 80 80 80 80 80 80 80 80 80 00");
	scan_refuses("3f ff ff ff ff 7f");
	scan_refuses("40");
	scan_refuses("40 01");
	scan_refuses("40 01 78");
	scan_refuses("40 01 78 02 79");
	scan_refuses("01 7f ff ff ff 7f 00"); /* a string of 256 MB */
	scan_refuses("01 ff 80 01 00");       /* Huffman bit and a long length */
}

static void scanner_integer_limit(void **state)
{
	(void)state;
	/* 2^28 itself passes: 127 + 0x0fffff81. */
	scans_as("ff 81 ff ff 7f", "d", 1);
	scan_refuses("ff 82 ff ff 7f");
}

/* ---- the encoder ---- */

/* Every static entry, as nghttp2 knows it, comes out as its own index. */
struct one {
	char name[64], value[64];
	struct hpack_field f;
};

static int take_one(void *arg, const struct hpack_field *f)
{
	struct one *o = arg;

	assert_true(f->name_len < sizeof(o->name) && f->value_len < sizeof(o->value));
	memcpy(o->name, f->name, f->name_len);
	memcpy(o->value, f->value, f->value_len);
	o->f = (struct hpack_field){ .name = o->name,
				     .value = o->value,
				     .name_len = f->name_len,
				     .value_len = f->value_len,
				     .never_indexed = f->never_indexed };
	return 0;
}

static bool is_secret_index(uint8_t i)
{
	return i == 23 || i == 32 || i == 49 || i == 55;
}

static void static_table(void **state)
{
	struct hpack_decoder *d = new_decoder();

	(void)state;
	for (uint8_t i = 1; i <= 61; i++) {
		uint8_t in = 0x80 | i, out[64];
		struct one o = { .name = "" };
		size_t len = 0;

		assert_int_equal(hpack_decode(d, &in, 1, NO_LIMIT, take_one, &o), 0);
		assert_int_equal(hpack_encode(out, sizeof(out), &len, &o.f), 0);
		if (is_secret_index(i)) { /* 0001 and a four bit prefix, empty value */
			const uint8_t want[] = { 0x1f, (uint8_t)(i - 15), 0 };

			assert_int_equal(len, 3);
			assert_memory_equal(out, want, 3);
		} else {
			assert_int_equal(len, 1);
			assert_int_equal(out[0], in);
		}
		/* An index would do, but what came never-indexed leaves so (RFC 7541 6.2.3). */
		len = 0;
		o.f.never_indexed = true;
		assert_int_equal(hpack_encode(out, sizeof(out), &len, &o.f), 0);
		assert_int_equal(out[0] & 0xf0, 0x10);
	}
	hpack_decoder_free(d);
}

static void encodes_to(const char *name, const char *value, const char *hex)
{
	uint8_t want[256], got[256];
	size_t n = hex_read(want, sizeof(want), hex), len = 0;

	assert_int_equal(hpack_encode_str(got, sizeof(got), &len, name, value), 0);
	assert_int_equal(len, n);
	assert_memory_equal(got, want, n);
}

static void encoder_forms(void **state)
{
	(void)state;
	encodes_to(":method", "POST", "83");
	encodes_to(":status", "200", "88");
	encodes_to(":status", "505", "08 03 353035"); /* the first index of the name */
	encodes_to(":path", "/a", "04 02 2f61");
	encodes_to("content-type", "a", "0f 10 01 61");
	encodes_to("te", "x", "00 02 7465 01 78");
	encodes_to("te", "", "00 02 7465 00");
	encodes_to("authorization", "x", "1f 08 01 78");
	encodes_to("cookie", "x", "1f 11 01 78");
	encodes_to("set-cookie", "x", "1f 28 01 78");
	encodes_to("proxy-authorization", "x", "1f 22 01 78");
	encodes_to("auth-token-bin", "x", "10 0e 617574682d746f6b656e2d62696e 01 78");
	encodes_to("authorizatio", "x", "00 0c 617574686f72697a6174696f 01 78");
}

/* Lengths around the steps of the integer code, and capacities up to the right one. */
static void encoder_lengths(void **state)
{
	static const size_t lengths[] = { 0,   1,   126,   127,   128,   129,   254,  255,
					  256, 383, 16383, 16510, 16511, 16512, 60000 };
	static char big[60000];
	static uint8_t buf[70000];

	(void)state;
	memset(big, 'v', sizeof(big));
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct hpack_decoder *d = new_decoder();
		struct hpack_field f = {
			.name = "x-n", .value = big, .name_len = 3, .value_len = lengths[i]
		};
		struct text *t = calloc(1, sizeof(*t));
		size_t len = 0, need;

		assert_non_null(t);
		assert_int_equal(hpack_encode(buf, sizeof(buf), &len, &f), 0);
		need = len;
		assert_int_equal(hpack_decode(d, buf, len, NO_LIMIT, to_text, t), 0);
		assert_int_equal(t->len, 3 + 2 + lengths[i] + 1);
		for (size_t cap = need > 300 ? need - 300 : 0; cap < need; cap++) {
			len = 0;
			assert_int_equal(hpack_encode(buf, cap, &len, &f), -ENOSPC);
			assert_int_equal(len, 0);
		}
		len = 0;
		assert_int_equal(hpack_encode(buf, need, &len, &f), 0);
		assert_int_equal(len, need);
		free(t);
		hpack_decoder_free(d);
	}
}

static void encoder_without_room(void **state)
{
	uint8_t *buf = malloc(4);
	size_t len = 4;

	(void)state;
	assert_non_null(buf);
	assert_int_equal(hpack_encode_str(buf, 4, &len, ":method", "POST"), -ENOSPC);
	assert_int_equal(hpack_encode_str(buf, 4, &len, "te", "x"), -ENOSPC);
	assert_int_equal(len, 4);
	len = 3;
	assert_int_equal(hpack_encode_str(buf, 4, &len, "te", "x"), -ENOSPC);
	assert_int_equal(len, 3);
	assert_int_equal(hpack_encode_str(buf, 4, &len, ":method", "POST"), 0);
	assert_int_equal(len, 4);
	free(buf);
	len = 0;
	assert_int_equal(hpack_encode_str(NULL, 0, &len, "", ""), -ENOSPC);
}

/* Random fields: what we encode is stateless and means the same to nghttp2, whatever its table holds. */
static void encoder_random(void **state)
{
	static const char *const known[] = { ":status",     ":path", "content-type",
					     "grpc-status", "te",    "authorization" };
	uint64_t seed = test_seed(7541);
	struct hpack_decoder *d = new_decoder();

	(void)state;
	decodes_to(d, c3[0].hex, c3[0].fields); /* a history */
	for (int round = 0; round < 2000; round++) {
		struct text want = { .fail_at = 0 }, got = { .fail_at = 0 };
		uint8_t buf[16384];
		size_t len = 0;
		struct hpack_scan s;
		unsigned n = rnd(&seed) % 12;

		for (unsigned i = 0; i < n; i++) {
			char name[64], value[300];
			struct hpack_field f = { .name = name, .value = value };

			if (rnd(&seed) % 2) {
				f.name = known[rnd(&seed) % ARRAY_SIZE(known)];
				f.name_len = strlen(f.name);
			} else {
				f.name_len = rnd(&seed) % sizeof(name);
				for (size_t j = 0; j < f.name_len; j++)
					name[j] = (char)('a' + rnd(&seed) % 26);
			}
			f.value_len = rnd(&seed) % sizeof(value);
			for (size_t j = 0; j < f.value_len; j++)
				value[j] = (char)(1 + rnd(&seed) % 255);
			f.never_indexed = rnd(&seed) % 4 == 0;
			assert_int_equal(hpack_encode(buf, sizeof(buf), &len, &f), 0);
			if (!strcmp(f.name, "authorization"))
				f.never_indexed = true;
			to_text(&want, &f);
		}
		assert_int_equal(hpack_scan(buf, len, &s), 0);
		assert_int_equal(s.fields, n);
		assert_false(s.dynamic_ref || s.incremental || s.size_update);
		assert_int_equal(hpack_decode(d, buf, len, NO_LIMIT, to_text, &got), 0);
		assert_int_equal(got.len, want.len);
		assert_memory_equal(got.s, want.s, want.len);
	}
	/* And left the table as it was. */
	decodes_to(d, c3[1].hex, c3[1].fields);
	hpack_decoder_free(d);
}

/* Heads of a real Ballista client and executor: Huffman codes and insertions. */
static void tonic_heads(void **state)
{
	static const char head[] =
		"8386418b089d5c0b8170dc6c2f801f049e6076587f0bcb41a69d2bd761d2721e85f0d069a74ee2d9dc"
		"c4"
		"2b17cf88a94082497f864d833505b11f5f8b1d75d0620d263d4c4d65647a8949ea311802e169773f";
	struct hpack_decoder *d = new_decoder();

	(void)state;
	decodes_to(d, head,
		   ":method: POST\n:scheme: http\n:authority: 127.0.0.1:51900\n"
		   ":path: /arrow.flight.protocol.FlightService/DoGet\nte: trailers\n"
		   "content-type: application/grpc\nuser-agent: tonic/0.14.6\n");
	scans_as(head, "i", 7);
	scans_as("885f8b1d75d0620d263d4c4d65646197d07abe94640a693f75040138a01fb8cbb71a714c5a37ff",
		 "i", 3);
	hpack_decoder_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rfc7541_examples),
		cmocka_unit_test(rfc7541_examples_truncated),
		cmocka_unit_test(empty_block),
		cmocka_unit_test(malformed_blocks),
		cmocka_unit_test(header_list_limit),
		cmocka_unit_test(field_errors_are_remembered),
		cmocka_unit_test(nothing_after_the_limit),
		cmocka_unit_test(table_limits),
		cmocka_unit_test(size_update_to_zero_empties_the_table),
		cmocka_unit_test(scanner_flags),
		cmocka_unit_test(scanner_refuses),
		cmocka_unit_test(scanner_integer_limit),
		cmocka_unit_test(static_table),
		cmocka_unit_test(encoder_forms),
		cmocka_unit_test(encoder_lengths),
		cmocka_unit_test(encoder_without_room),
		cmocka_unit_test(encoder_random),
		cmocka_unit_test(tonic_heads),
	};

	return cmocka_run_group_tests_name("hpack", tests, NULL, NULL);
}
