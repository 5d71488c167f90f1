# SPDX-License-Identifier: Apache-2.0
"""All cases of the suite, in the order in which they run."""
import sys

from peers import harness
import cases_request
import cases_flow
import cases_control
import cases_cancel
import cases_death
import cases_refused
import cases_deadline
import cases_drain
import cases_abuse
import cases_volume
import cases_chaos
import cases_flight
import cases_ballista
import cases_board
import cases_h2spec
import cases_rules
import cases_budgets
import cases_observe
import cases_trouble
import cases_scenario

MODULES = (cases_request, cases_flow, cases_control, cases_cancel, cases_death, cases_refused, cases_deadline,
           cases_drain, cases_abuse, cases_volume, cases_chaos, cases_flight, cases_ballista, cases_board,
           cases_h2spec, cases_rules, cases_budgets, cases_observe, cases_trouble, cases_scenario)

if __name__ == "__main__":
    sys.exit(harness.main(sys.argv[1:]))
