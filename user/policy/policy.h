/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.h - which resolved addresses may be dialled.
 *
 * A ticket is untrusted input that names a host: without this file the proxy
 * would be an open relay into the cluster (SSRF). The check is on the resolved
 * address, at every dial, so a name cannot change its meaning between check
 * and connect. An immutable snapshot: workers share it without locks.
 */
#ifndef FS_POLICY_H
#define FS_POLICY_H

#include "base/addr.h"

struct policy;

enum policy_verdict {
	POLICY_ALLOW,
	POLICY_DENY_LOOPBACK,  /* 127/8, ::1, and the unspecified address */
	POLICY_DENY_LINKLOCAL, /* 169.254/16, fe80::/10, and cloud metadata wherever it is */
	POLICY_DENY_MULTICAST, /* 224/4, ff00::/8, broadcast */
	POLICY_DENY_RESERVED,  /* 0/8, 240/4, IPv4-embedding prefixes that hide one of these */
	POLICY_DENY_SELF,      /* one of our own listeners */
	POLICY_DENY_CIDR,      /* allow list given, address not in it */
	POLICY_DENY_PORT,      /* allowed ports given, port not in them */
	POLICY_VERDICTS,
};

/* A short static text for logs ("loopback address", ...); "allowed" for ALLOW. */
const char *policy_verdict_name(enum policy_verdict v);

/* An empty policy: any address but the deny list, any port. NULL when out of memory. */
struct policy *policy_new(void);
void policy_free(struct policy *p); /* NULL is fine */

/* Each parses its flag's text: 0, -EINVAL (text is wrong), -ENOMEM, -ENOSPC (too many). */
int policy_allow_cidr(struct policy *p,
		      const char *cidr); /* "10.0.0.0/8", "fd00::/8", one address */
int policy_allow_port(struct policy *p, const char *range); /* "50051" or "50000-50100" */
void policy_allow_loopback(struct policy *p);
/*
 * Adds one of our own listening addresses (the admin server's too); 0, -EINVAL, -ENOMEM
 * or -ENOSPC. A wildcard listener stands for every address of this host: the caller adds
 * it as it is, which covers loopback, and the host's other addresses with its port one
 * by one, read once from the system.
 */
int policy_add_self(struct policy *p, const struct addr *a);

/* Whether *a may be dialled. An IPv4-mapped address is judged as the IPv4 address it is. */
enum policy_verdict policy_check(const struct policy *p, const struct addr *a);

#endif
