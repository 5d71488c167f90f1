/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefix.h - address prefixes (CIDR) and port ranges as values.
 */
#ifndef FS_PREFIX_H
#define FS_PREFIX_H

#include "base/addr.h"

struct prefix {
	uint8_t bytes[16];
	uint8_t bits;
	bool v4; /* then only bytes[0..3] count and bits is at most 32 */
};

struct port_range {
	uint16_t lo, hi; /* inclusive, 1..65535, lo <= hi */
};

/*
 * Reads "10.0.0.0/8", "fd00::/8" or one address without a length. Bits behind the
 * length must be 0: "10.1.2.3/8" is more likely a wrong length than a wish. A prefix
 * inside ::ffff:0:0/96 becomes its IPv4 form. 0, or -EINVAL; *ret is untouched then.
 */
int prefix_parse(const char *text, struct prefix *ret);
/* An IPv4-mapped address is its IPv4 form; IPv6 prefixes never hold IPv4 addresses. */
bool prefix_contains(const struct prefix *p, const struct addr *a);
/* Whether the first `bits` bits of a and b are the same. */
bool prefix_bits_equal(const uint8_t *a, const uint8_t *b, unsigned bits);

/* Reads "50051" or "50000-50100". 0, or -EINVAL; *ret is untouched then. */
int port_range_parse(const char *text, struct port_range *ret);

#endif
