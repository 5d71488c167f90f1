/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_SUBJECT_H
#define SIM_SUBJECT_H

#include "session/session.h"
#include "world.h"

extern const struct subject_ops subject_session;

#endif
