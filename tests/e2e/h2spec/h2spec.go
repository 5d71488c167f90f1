// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools keeps h2spec in go.mod; see build.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
