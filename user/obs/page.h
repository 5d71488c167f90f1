/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - pages that are compiled into the program (scripts/embed-page makes them).
 */
#ifndef FS_PAGE_H
#define FS_PAGE_H

#include <stddef.h>

struct page_source {
	const unsigned char *bytes;
	size_t len;
	const char
		*policy; /* Content-Security-Policy that allows the page what it has, and no more */
};

extern const struct page_source page_status; /* user/obs/status.html */

#endif
