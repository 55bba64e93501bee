//go:build tools

// Package tools keeps what is built from this module in its go.mod.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
