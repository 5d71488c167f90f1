/* SPDX-License-Identifier: Apache-2.0 */
#include "flight/flight.h"

#include "flight/arena.h"
#include "health.pb-c.h"

int health_request_decode(const uint8_t *msg, size_t len, char *buf, size_t cap)
{
	Grpc__Health__V1__HealthCheckRequest *req;
	struct arena memory;
	int err = -EINVAL;

	assert(cap > 0);
	arena_init(&memory, len);
	req = grpc__health__v1__health_check_request__unpack(&memory.allocator, len, msg);
	if (req && !(req->service.len && memchr(req->service.data, '\0', req->service.len))) {
		size_t n = min_u64(req->service.len, cap - 1);

		if (n)
			memcpy(buf, req->service.data, n);
		buf[n] = '\0';
		err = 0;
	}
	arena_free(&memory);
	return err;
}
