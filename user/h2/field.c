/* SPDX-License-Identifier: Apache-2.0 */
#include "h2/field.h"

bool hpack_name_is(const struct hpack_field *f, const char *name)
{
	return f->name_len == strlen(name) && !memcmp(f->name, name, f->name_len);
}

bool hpack_value_is(const struct hpack_field *f, const char *value)
{
	return f->value_len == strlen(value) && !memcmp(f->value, value, f->value_len);
}

bool hpack_field_legal(const struct hpack_field *f)
{
	static const char *const connection[] = { "connection", "keep-alive", "proxy-connection",
						  "transfer-encoding", "upgrade" };

	if (!f->name_len)
		return false;
	for (size_t i = 0; i < f->name_len; i++) {
		uint8_t ch = (uint8_t)f->name[i];

		if (ch <= 0x20 || ch >= 0x7f || (ch >= 'A' && ch <= 'Z') || (ch == ':' && i))
			return false;
	}
	for (size_t i = 0; i < f->value_len; i++) {
		uint8_t ch = (uint8_t)f->value[i];

		if (!ch || ch == '\r' || ch == '\n')
			return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(connection); i++) {
		if (hpack_name_is(f, connection[i]))
			return false;
	}
	return !hpack_name_is(f, "te") || hpack_value_is(f, "trailers");
}

static bool blank(char ch)
{
	return ch == ' ' || ch == '\t';
}

bool hpack_value_blank(const struct hpack_field *f)
{
	return f->value_len && (blank(f->value[0]) || blank(f->value[f->value_len - 1]));
}
