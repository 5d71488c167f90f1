# SPDX-License-Identifier: Apache-2.0
"""Independent peers for the end-to-end suite: a raw client and a scripted executor, the proxy as a
process, and the harness that runs cases. HTTP/2 is the `h2` library's, not the product's."""
