//go:build race

package e2e

// raceEnabled says that the daemon under test is built with the race detector, as the tests are.
const raceEnabled = true
