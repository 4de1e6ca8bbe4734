// Package configs holds the tests of what lies in configs/: every lab file loads without an error, the unit verifies, the
// dashboard and the alerts ask for metrics that there are.
package configs
