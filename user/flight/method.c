/* SPDX-License-Identifier: Apache-2.0 */
#include "flight/flight.h"

#define FLIGHT(name) "/arrow.flight.protocol.FlightService/" name
#define HEALTH(name) "/grpc.health.v1.Health/" name

static const struct {
	const char *path;
	enum flight_method method;
} methods[] = {
	{ FLIGHT("DoGet"), FLIGHT_DO_GET },         { HEALTH("Check"), FLIGHT_HEALTH_CHECK },
	{ HEALTH("Watch"), FLIGHT_HEALTH_WATCH },   { FLIGHT("Handshake"), FLIGHT_OTHER },
	{ FLIGHT("ListFlights"), FLIGHT_OTHER },    { FLIGHT("GetFlightInfo"), FLIGHT_OTHER },
	{ FLIGHT("PollFlightInfo"), FLIGHT_OTHER }, { FLIGHT("GetSchema"), FLIGHT_OTHER },
	{ FLIGHT("DoPut"), FLIGHT_OTHER },          { FLIGHT("DoExchange"), FLIGHT_OTHER },
	{ FLIGHT("DoAction"), FLIGHT_OTHER },       { FLIGHT("ListActions"), FLIGHT_OTHER },
};

enum flight_method flight_method_find(const char *path, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (strlen(methods[i].path) == len && !memcmp(methods[i].path, path, len))
			return methods[i].method;
	return FLIGHT_UNKNOWN;
}
