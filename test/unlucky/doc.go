// Command unlucky runs tests under bad luck, to find those that depend on how soon something happens, and races of the
// daemon's that the same luck would bring about.
//
//	go run ./test/unlucky ./internal/content/mirror -count 20            # waits at random after unlocks, writes and renames
//	go run ./test/unlucky -stall ./test/interop -run TestRogue   # stops a test's processes for a moment, now and then
//	go run ./test/unlucky -crowd ./test/e2e -timeout 1h -p 1     # leaves the tests a third of the machine
//
// Arguments are those of go test, which is given -race. The waits are built into the tests by an overlay of the standard library,
// which go build knows; nothing of Go's own files is changed. A stall is what a virtual machine sees whose host is busy, a crowd
// what a smaller machine is, or one with other work.
//
// What wakes up often gets its turn in a crowd all the same. A quota, as "docker run --cpus 0.5" or "systemd-run --scope -p CPUQuota=50%"
// give go test, is harder on it: all stand still together.
//
// Not every failure is a fault: a test that measures how quick something is cannot pass while its processes are stopped.
package main
