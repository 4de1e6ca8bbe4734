// Package walls holds the walls of the house: which room may import which, and why. Its test fails when a wall is broken,
// and when a package is missing from the table.
package walls
