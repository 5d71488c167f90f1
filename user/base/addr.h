/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addr.h - socket addresses as values, and their text forms.
 */
#ifndef FS_ADDR_H
#define FS_ADDR_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/base.h"

struct addr {
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_storage ss;
	};
	socklen_t len; /* 0 = no address */
};

/* "[" + 45 + "%scope" + "]:65535" and a NUL, with room to spare. */
#define ADDR_STRLEN 80

/*
 * Reads "HOST:PORT", "[V6]:PORT" or ":PORT" where HOST is an IP literal (no
 * names). ":PORT" is the wildcard [::]. 0, or -EINVAL; *ret is untouched then.
 */
int addr_parse(const char *text, struct addr *ret);
/* Reads an IP literal, with or without brackets, no port, no scope. 0 or -EINVAL. */
int addr_parse_ip(const char *text, uint16_t port, struct addr *ret);
/* Writes "1.2.3.4:5" or "[::1]:5" (an IPv4-mapped address in its IPv4 form). Returns buf. */
const char *addr_format(const struct addr *a, char buf[ADDR_STRLEN]);
uint16_t addr_port(const struct addr *a); /* host byte order; 0 when none */
/* Turns ::ffff:a.b.c.d into a.b.c.d; anything else stays. */
void addr_unmap(struct addr *a);
bool addr_equal(const struct addr *a, const struct addr *b);

#endif
