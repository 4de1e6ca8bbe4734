// Package pause waits, for who tries again later.
//
//	for wait := time.Second; pause.For(ctx, wait) == nil; wait = min(2*wait, time.Minute) {
//		…
//	}
//
// Every room that retries needs it, and time.Sleep does not hear the end of a context.
package pause
