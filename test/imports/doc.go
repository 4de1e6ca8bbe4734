// Package imports holds the import rules: which package may import which of ours, and why. Its test fails on an import that no rule
// permits, on a package without a rule, and on a permission that no import uses.
package imports
